"""Plays a few tasks without services or models: real workflow, env, groups and advantages."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.algorithms.algorithm import Algorithm, advantages_by_policy
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GroupOutcome, group_outcome
from troupe.episodes.build import load_parts
from troupe.episodes.local import LocalEnv, ScriptedRollout
from troupe.episodes.player import Played
from troupe.ids import ticket_id, train_round
from troupe.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class DryEpisode:
    """One played task; ``advantages`` has one list per group, in order of ``played.groups``."""

    played: Played
    advantages: list[list[float]]


async def dry_run(spec: JobSpec, *, num_tasks: int = 2) -> list[DryEpisode]:
    """Play ``num_tasks`` training tasks of ``spec`` with a scripted policy."""
    parts = load_parts(spec)
    with LocalEnv(parts.family) as env:
        rollout = ScriptedRollout(parts.family, slips=True, observe=env.observe)
        player = parts.player(rollout, env)
        episodes = [await player.play(_ticket(spec, index)) for index in range(num_tasks)]
    advantages = _advantages(
        parts.algorithm, [group for episode in episodes for group in episode.groups]
    )
    return [
        DryEpisode(episode, [advantages[group.group_id] for group in episode.groups])
        for episode in episodes
    ]


def _advantages(algorithm: Algorithm, groups: Sequence[pb.Group]) -> dict[str, list[float]]:
    """Advantages by group id, computed like the trainer's: all groups of a policy together.

    There is no trainer here: values and log ratios, where an algorithm reads them, are 0.
    """
    by_policy: defaultdict[str, list[GroupOutcome]] = defaultdict(list)
    for group in groups:
        by_policy[group.policy].append(group_outcome(group))
    advantages = advantages_by_policy(algorithm, by_policy)
    return {
        outcome.group_id: values
        for policy, outcomes in by_policy.items()
        for outcome, values in zip(outcomes, advantages[policy], strict=True)
    }


def _ticket(spec: JobSpec, index: int) -> pb.Ticket:
    return pb.Ticket(
        ticket_id=ticket_id(spec.name, train_round(0), index),
        job_id=spec.name,
        round_id=train_round(0),
        kind=pb.ROUND_KIND_TRAIN,
        split="train",
        task_index=index,
        policy_versions=dict.fromkeys(spec.policies, 0),
    )
