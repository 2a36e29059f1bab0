"""Plays a few tasks without services or models: real workflow, env, groups and advantages."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from troupe.algorithms.algorithm import Algorithm, advantages_by_policy
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GroupOutcome, group_outcome
from troupe.code_places import told_with_place
from troupe.episodes.build import load_parts
from troupe.episodes.local import LocalEnv, ScriptedRollout
from troupe.episodes.player import Played
from troupe.errors import InvalidArgumentError
from troupe.ids import ticket_id, train_round
from troupe.runtime.transient import is_of_code
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class DryEpisode:
    """One played task; ``advantages`` has one list per group, in order of ``played.groups``."""

    played: Played
    advantages: list[list[float]]


async def dry_run(
    spec: JobSpec, *, num_tasks: int = 2, open_sandbox: Callable[[], Sandbox] | None = None
) -> list[DryEpisode]:
    """Play ``num_tasks`` training tasks of ``spec`` with a scripted policy.

    ``open_sandbox`` opens the sandbox of a task that runs programs; without it this machine's.

    Raises InvalidArgumentError that says where, when the task's code or the workflow's raises.
    """
    try:
        return await _played(spec, num_tasks, open_sandbox)
    except (Exception, SystemExit) as error:  # the latter would be the command's own end
        if not is_of_code(error):
            raise
        raise InvalidArgumentError(
            f"task '{spec.task.name}' can't be played: {told_with_place(error)}. Correct its code"
        ) from error


async def _played(
    spec: JobSpec, num_tasks: int, open_sandbox: Callable[[], Sandbox] | None
) -> list[DryEpisode]:
    parts = load_parts(spec)
    with LocalEnv(parts.family, open_sandbox=open_sandbox) as env:
        rollout = ScriptedRollout(parts.family, slips=True, observe=env.observe)
        player = parts.player(rollout, env)
        episodes = [await player.play(ticket_of(spec, index)) for index in range(num_tasks)]
    advantages = _advantages(
        parts.algorithm, [group for episode in episodes for group in episode.groups]
    )
    return [
        DryEpisode(episode, [advantages[group.group_id] for group in episode.groups])
        for episode in episodes
    ]


def episode_document(episode: DryEpisode) -> dict[str, Any]:
    """``episode`` as JSON: groups with their candidates, rewards and advantages."""
    record = episode.played.episode
    groups = [
        {
            "group_id": group.group_id,
            "agent": group.agent,
            "turn": group.turn,
            "policy": group.policy,
            "prompts": [prompt.digest for prompt in group.prompts],
            "candidates": [
                {
                    "index": c.index,
                    "text": c.text,
                    "reward": c.reward,
                    "team_reward": c.team_reward,
                    "local_rewards": dict(c.local_rewards),
                    "advantage": advantage,
                    "is_chosen": c.is_chosen,
                    "info": json.loads(c.info_json or "{}"),
                }
                for c, advantage in zip(group.candidates, advantages, strict=True)
            ],
        }
        for group, advantages in zip(episode.played.groups, episode.advantages, strict=True)
    ]
    return {
        "task_id": record.task_id,
        "is_success": record.is_success,
        "num_turns": record.num_turns,
        "team_return": record.team_return,
        "groups": groups,
    }


PAY_ITS_ANSWERS = (
    "pay its own answers by a term (a seat of a program: `judged`, or `score`), or take an "
    "algorithm that pays an agent for what follows: `follow`, or `grpo` over whole episodes"
)
"""What to do for an agent that is paid the same for all it does."""


def untaught(episodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Agents of ``episodes`` (documents) whose different answers were all worth the same.

    None where no agent's were worth different things: scripted answers may all be right or wrong.
    """
    is_taught: dict[str, bool] = {}
    differs: set[str] = set()
    for group in (group for episode in episodes for group in episode["groups"]):
        agent, candidates = group["agent"], group["candidates"]
        is_taught[agent] = is_taught.get(agent, False) or any(c["advantage"] for c in candidates)
        if len({c["text"] for c in candidates}) > 1:
            differs.add(agent)
    if not any(is_taught.values()):
        return []
    return [agent for agent, taught in is_taught.items() if agent in differs and not taught]


def _advantages(algorithm: Algorithm, groups: Sequence[pb.Group]) -> dict[str, list[float]]:
    """Advantages by group id, computed like the trainer's: all groups of a policy together.

    There is no trainer here: values and log ratios, where an algorithm reads them, are 0, and
    nothing is subtracted from rewards (KL, long completions).
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


def ticket_of(spec: JobSpec, index: int) -> pb.Ticket:
    """The ticket of a training task, of a job that no router opened."""
    return pb.Ticket(
        ticket_id=ticket_id(spec.name, train_round(0), index),
        job_id=spec.name,
        round_id=train_round(0),
        kind=pb.ROUND_KIND_TRAIN,
        split="train",
        task_index=index,
        policy_versions=dict.fromkeys(spec.policies, 0),
    )
