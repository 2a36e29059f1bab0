"""Attaches to groups what rewards are the sum of, for algorithms that compare terms apart."""

from collections import defaultdict
from collections.abc import Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.branch import Draw
from troupe.rewards.mix import TEAM_TERM, RewardMix, terms_by_agent
from troupe.samplers.coalition import CoalitionSampler
from troupe.samplers.follow import FollowSampler
from troupe.samplers.joint import JointSampler
from troupe.samplers.led import LedSampler
from troupe.samplers.sampler import GroupingKey, Sampler
from troupe.spec.issues import Issue, SpecInvalidError

Terms = dict[str, float]
"""Unweighted, by name."""


def check_terms(kind: str, sampler: Sampler) -> None:
    """Raise SpecInvalidError where ``sampler`` draws groups whose rewards are no sums of terms."""
    others = FollowSampler | JointSampler | CoalitionSampler | LedSampler
    if not isinstance(sampler, others) and sampler.grouping not in ("turns", "acts"):
        return
    message = (
        f"'{kind}' needs the terms of rewards, which are kept for candidates of one observation "
        f"and for whole episodes, and its {type(sampler).__name__} compares something else "
        f"(grouping {sampler.grouping}); leave out `terms` of its needs, or change its sampler"
    )
    raise SpecInvalidError([Issue("/algorithm/kind", message)])


def attach_terms(
    groups: Sequence[pb.Group], draws: Sequence[Draw], mix: RewardMix, grouping: GroupingKey
) -> None:
    """Set ``terms`` of each candidate and ``term_weights`` of each group, in place.

    In groups by task they are sums over the trajectory, like its return. Weighted they add up to
    the reward.
    """
    by_place = {(draw.agent, draw.trajectory, draw.turn): draw for draw in draws}
    for group in groups:
        group.term_weights.update(mix.weights(group.agent))
        totals = _totals(group.agent, draws) if grouping == "task" else {}
        for candidate in group.candidates:
            if grouping == "task":
                terms = totals[candidate.trajectory]
            else:
                draw = by_place[group.agent, candidate.trajectory, candidate.turn]
                terms = _terms(group.agent, draw, candidate.index)
            candidate.terms.update(terms)


def _totals(agent: str, draws: Sequence[Draw]) -> dict[int, Terms]:
    """The agent's terms by trajectory, over the executed actions of all agents."""
    totals: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for draw in draws:
        for name, value in _terms(agent, draw, draw.chosen).items():
            totals[draw.trajectory][name] += value
    return {trajectory: dict(terms) for trajectory, terms in totals.items()}


def _terms(agent: str, draw: Draw, candidate: int) -> Terms:
    """What the agent gets for one candidate of ``draw``, whoever acted."""
    outcome = draw.outcomes[candidate]
    own = terms_by_agent(draw.agent, outcome.local_rewards).get(agent, {})
    return {TEAM_TERM: outcome.team_reward, **own}
