"""Generalised advantage estimation over the turns of one agent in one episode. Plain floats."""

from collections import defaultdict
from collections.abc import Sequence

from troupe.candidates import GroupOutcome


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float, gae_lambda: float
) -> list[float]:
    """A_t = sum over l of (gamma * lambda) ** l * (r + gamma * V' - V) at t + l.

    ``values[t]`` is the critic's estimate before act t. The value after the last act is 0: an
    episode cut by ``max_turns`` is over, because the limit is part of the game.

    Source: GAE (arXiv 1506.02438), Equation 16.

    Example: ``gae([0, 1], [0.5, 0.5], 1.0, 1.0) == [0.5, 0.5]``.
    """
    advantages: list[float] = []
    advantage, following = 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + gamma * following - value + gamma * gae_lambda * advantage
        following = value
        advantages.append(advantage)
    return advantages[::-1]


def gae_of_group(
    group: GroupOutcome, values: Sequence[float], gamma: float, gae_lambda: float
) -> list[float]:
    """``gae`` over the turns of each trajectory of ``group``, one advantage per candidate.

    ``values`` holds the estimate before each candidate's act, in index order.
    """
    advantages = [0.0] * len(group.candidates)
    places_of: defaultdict[int, list[int]] = defaultdict(list)
    for place, candidate in enumerate(group.candidates):
        places_of[candidate.trajectory].append(place)
    for places in places_of.values():
        places.sort(key=lambda place: group.candidates[place].turn)
        rewards = [group.candidates[place].reward for place in places]
        estimated = gae(rewards, [values[place] for place in places], gamma, gae_lambda)
        for place, advantage in zip(places, estimated, strict=True):
            advantages[place] = advantage
    return advantages
