"""Generalised advantage estimation over the turns of one agent in one episode. Plain floats."""

from collections.abc import Sequence


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
