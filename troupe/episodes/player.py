"""Plays one ticket: runs the workflow on real candidates and returns groups and the episode.

Owns AT-GRPO's control flow (arXiv 2510.11062, Algorithm 1). Never talks to a stream and never
retries: it raises infrastructure failures, and the holder of the ticket tries again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from troupe.aio import gather
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.affinity import playing
from troupe.episodes.branch import Branch, BranchContext, Draw
from troupe.episodes.call_deadlines import CallDeadlines
from troupe.episodes.coalitions import team_credit
from troupe.episodes.follow import FollowedEpisode, resumable
from troupe.episodes.forest import grow_forest
from troupe.episodes.groups import (
    Ending,
    ending_of_branches,
    ending_of_tree,
    episode_record,
    groups_by_acts,
    groups_by_node,
    groups_by_observation,
    groups_by_task,
    groups_by_turns,
)
from troupe.episodes.joint import JointTree, at_once
from troupe.episodes.lead import groups_by_lead
from troupe.episodes.ports import EnvPort, RolloutPort, Start, TeacherPort
from troupe.episodes.redraw import Advantages, has_variance, play_again, redrawn_index
from troupe.episodes.seats import play_out
from troupe.episodes.terms import attach_terms
from troupe.errors import DeadlineError, InvalidArgumentError
from troupe.rewards.mix import RewardMix
from troupe.samplers.coalition import CoalitionSampler
from troupe.samplers.follow import FollowSampler
from troupe.samplers.forest import ForestSampler
from troupe.samplers.joint import JointSampler
from troupe.samplers.led import LedSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.job import JobSpec
from troupe.tasks.family import SPLITS, Split
from troupe.workflows.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Played:
    """Groups to train on (none for an evaluation or a past version) and the episode for people."""

    groups: list[pb.Group]
    episode: pb.Episode


class EpisodePlayer:
    """Plays tickets of one job; safe to use for many tickets at once."""

    def __init__(
        self,
        spec: JobSpec,
        *,
        workflow: Workflow,
        sampler: Sampler,
        mix: RewardMix,
        rollout: RolloutPort,
        env: EnvPort,
        num_tasks: Callable[[Split], int | None] = lambda split: None,
        with_terms: bool = False,
        teacher: TeacherPort | None = None,
        advantages: Advantages | None = None,
        team_writes_prompts: bool = False,
    ) -> None:
        """``num_tasks`` gives the size of a split, or None if infinite; redraws stay within it.

        ``with_terms``: the algorithm needs the terms of rewards. ``teacher``: scores what is
        sampled for training, of policies whose teacher is served. ``advantages``: of a group, by
        which it is redrawn; without, by what its candidates earned. ``team_writes_prompts``: see
        ``TaskFamily``.
        """
        self._spec = spec
        self._workflow = workflow
        self._sampler = sampler
        self._mix = mix
        self._rollout = rollout
        self._env = env
        self._num_tasks = num_tasks
        self._with_terms = with_terms
        self._teacher = teacher
        self._advantages = advantages
        self._team_writes_prompts = team_writes_prompts
        self._deadlines = CallDeadlines(spec)

    async def reset(self, ticket: pb.Ticket) -> Start:
        """The first state of ``ticket``'s task, for a later ``play`` of it."""
        with playing(_place(ticket, ticket.split, ticket.task_index)):
            return await self._reset(_split(ticket.split), ticket.task_index)

    async def play(self, ticket: pb.Ticket, *, start: Start | None = None) -> Played:
        """Play ``ticket`` to the end; raises DeadlineError after ``limits.episode_timeout_s``.

        ``start``: the first state, if it is known.
        """
        limit = self._deadlines.episode_s()
        try:
            async with asyncio.timeout(limit):
                return await self._play(ticket, start)
        except TimeoutError as error:
            raise DeadlineError(
                f"episode {ticket.ticket_id} took longer than {limit:g} s; raise "
                "limits.episode_timeout_s if its turns need more"
            ) from error

    async def _play(self, ticket: pb.Ticket, start: Start | None) -> Played:
        """Play the ticket's task; redraw, within the spec's limit, while no group has variance."""
        began = time.monotonic()
        last = 0 if ticket.kind == pb.ROUND_KIND_EVAL else self._spec.algorithm.redraws
        played, num_tokens, attempt = await self._play_task(ticket, 0, start), 0, 0
        ends: Counter[str] = Counter()

        def teaches(groups: list[pb.Group]) -> bool:
            return has_variance(groups, self._sampler.grouping, self._advantages)

        while attempt < last and played.groups and not teaches(played.groups):
            attempt += 1
            num_tokens += played.episode.num_tokens
            ends.update(played.episode.program_ends)
            played = await self._play_task(ticket, attempt)
        played.episode.num_redraws = attempt
        played.episode.num_tokens += num_tokens
        for end, count in ends.items():
            played.episode.program_ends[end] += count
        played.episode.wall_s = time.monotonic() - began
        return played

    async def _play_task(
        self, ticket: pb.Ticket, attempt: int, start: Start | None = None
    ) -> Played:
        split, index = _split(ticket.split), ticket.task_index
        size: int | None = None
        if attempt:
            # The first look at prepared rows reads all of them.
            size = await asyncio.to_thread(self._num_tasks, split)
            index = redrawn_index(ticket, attempt, seed=self._spec.seed, size=size)
        with playing(_place(ticket, split, index)):
            begun = start or await self._reset(split, index)
            again = play_again(ticket, attempt, size=size)
            return await self._play_from(begun, ticket, index, again)

    async def _reset(self, split: Split, index: int) -> Start:
        return await self._env.reset(
            split=split,
            index=index,
            observe=list(self._spec.agents),
            timeout_s=self._spec.limits.env_timeout_s,
        )

    async def _play_from(
        self, start: Start, ticket: pb.Ticket, index: int, again: tuple[str | int, ...]
    ) -> Played:
        is_eval = ticket.kind == pb.ROUND_KIND_EVAL
        context = BranchContext(
            spec=self._spec,
            sampler=ParallelSampler(1) if is_eval else self._sampler,
            rollout=self._rollout,
            env=self._env,
            mix=self._mix,
            policy_versions=dict(ticket.policy_versions),
            round_id=ticket.round_id,
            task_index=index,
            is_eval=is_eval,
            deadlines=self._deadlines,
            step=ticket.step,
            teacher=self._teacher,
            team_writes_prompts=self._team_writes_prompts,
            again=again,
        )
        run = await self._run(context, ticket, start)
        shown = [*run.groups, *run.only_shown]
        learns = self._spec.learns
        trained = [] if is_eval else [g for g in run.groups if learns(g.policy, ticket.step)]
        episode = episode_record(
            ticket,
            start.task_id,
            run.draws,
            shown,
            run.ending,
            run.replayed,
            trained={group.group_id for group in trained},
        )
        return Played(groups=trained, episode=episode)

    async def _run(self, context: BranchContext, ticket: pb.Ticket, start: Start) -> "_Run":
        sampler, task_id = context.sampler, start.task_id
        if isinstance(sampler, FollowSampler):
            workflow = resumable(self._spec, self._workflow, sampler)
            followed = await FollowedEpisode(context, sampler, workflow, start).play()
            groups, only_shown = followed.groups(ticket, task_id)
            return _Run(followed.draws(), groups, followed.ending(), only_shown)
        if isinstance(sampler, JointSampler):
            workflow = at_once(self._spec, self._workflow, sampler)
            root = await JointTree(context, sampler, workflow).play(start)
            draws = [draw for node in root.nodes() for draw in node.draws]
            return _Run(draws, groups_by_node(ticket, task_id, root), ending_of_tree(root))
        if isinstance(sampler, ForestSampler):
            branches = await grow_forest(context, sampler, self._workflow, start)
        else:
            branches = await self._run_all(context, start)
        draws = [draw for branch in branches for draw in branch.draws]
        if isinstance(sampler, CoalitionSampler):
            credit = await team_credit(context, sampler, self._workflow, start, branches)
            groups = groups_by_task(ticket, task_id, draws, credit.parts)
            return _Run(draws, groups, ending_of_branches(branches), replayed=credit.replayed)
        if isinstance(sampler, LedSampler):
            groups = groups_by_lead(ticket, task_id, draws, sampler)
            return _Run(draws, groups, ending_of_branches(branches))
        make = groups_by_observation if context.is_eval else _GROUPS[sampler.grouping]
        groups = make(ticket, task_id, draws)
        if self._with_terms and not context.is_eval:
            attach_terms(groups, draws, self._mix, sampler.grouping)
        return _Run(draws, groups, ending_of_branches(branches))

    async def _run_all(self, context: BranchContext, start: Start) -> list[Branch]:
        count, num_baselines = context.sampler.num_trajectories, context.sampler.num_baselines
        branches = [
            Branch(context, start, number, is_baseline=number >= count)
            for number in range(count + num_baselines)
        ]
        await gather(play_out(self._workflow.run, branch, self._spec) for branch in branches)
        return branches


@dataclass(frozen=True, slots=True)
class _Run:
    """One played task: its groups, those that stand in the episode's record alone, and draws that
    were only made to credit others.
    """

    draws: list[Draw]
    groups: list[pb.Group]
    ending: Ending
    only_shown: Sequence[pb.Group] = ()
    replayed: Sequence[Draw] = ()


_GROUPS = {
    "observation": groups_by_observation,
    "task": groups_by_task,
    "turns": groups_by_turns,
    "acts": groups_by_acts,
}


def _place(ticket: pb.Ticket, split: str, index: int) -> str:
    """The name of one play of one task, which env calls of it share."""
    return f"{ticket.ticket_id}/{split}/{index}"


def _split(text: str) -> Split:
    for split in SPLITS:
        if split == text:
            return split
    raise InvalidArgumentError(f"ticket names split '{text}'; known: {', '.join(SPLITS)}")
