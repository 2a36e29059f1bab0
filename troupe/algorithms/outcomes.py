"""Group records as advantages see them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from troupe.algorithms.algorithm import Algorithm, CandidateOutcome, GroupOutcome
from troupe.api.records.v1 import records_pb2 as pb


def group_outcome(group: pb.Group) -> GroupOutcome:
    """The part of ``group`` that an advantage may depend on."""
    return GroupOutcome(
        group_id=group.group_id,
        agent=group.agent,
        turn=group.turn,
        node=group.node,
        candidates=[
            CandidateOutcome(
                index=c.index,
                reward=c.reward,
                num_tokens=len(c.token_ids),
                is_truncated=c.finish_reason == pb.FINISH_REASON_LENGTH,
                trajectory=c.trajectory,
                turn=c.turn,
                is_baseline=c.is_baseline,
            )
            for c in group.candidates
        ],
    )


def advantages_of_step(algorithm: Algorithm, groups: Sequence[GroupOutcome]) -> list[list[float]]:
    """One list a group: each alone first, then together; groups of one policy, or with
    ``needs.team`` those of all policies of the step.
    """
    return algorithm.across_groups(groups, [algorithm.advantages(group) for group in groups])


def advantages_by_policy(
    algorithm: Algorithm, groups: Mapping[str, Sequence[GroupOutcome]]
) -> dict[str, list[list[float]]]:
    """The step's advantages of every policy, together where the algorithm sees the whole team."""
    if not algorithm.needs.team:
        return {policy: advantages_of_step(algorithm, own) for policy, own in groups.items()}
    team = [group for own in groups.values() for group in own]
    found = iter(advantages_of_step(algorithm, team))
    return {policy: [next(found) for _ in own] for policy, own in groups.items()}


def penalised(
    group: GroupOutcome, divergences: Sequence[float], coef: float, *, by_turn: bool = False
) -> GroupOutcome:
    """``group`` with coef * KL taken off each reward: of the candidate, or of its trajectory.

    ``divergences`` holds each candidate's KL, in index order. Where a trajectory has several
    candidates in the group, all carry its return, so all lose its whole KL; ``by_turn`` says that
    they carry their own turn's reward instead.

    Source: KL in the reward: InstructGPT (arXiv 2203.02155), Section 3.5.
    """
    of_trajectory: dict[int, float] = defaultdict(float)
    is_return = not by_turn and len({c.trajectory for c in group.candidates}) > 1
    for candidate, value in zip(group.candidates, divergences, strict=True):
        of_trajectory[candidate.trajectory if is_return else candidate.index] += value
    candidates = [
        replace(c, reward=c.reward - coef * of_trajectory[c.trajectory if is_return else c.index])
        for c in group.candidates
    ]
    return replace(group, candidates=candidates)
