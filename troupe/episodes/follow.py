"""Plays one episode whose candidates are followed: each is played on to the end M times.

Owns the continuations and the values that they give. Never talks to a stream and never retries,
like the player that calls it.

Source: VinePPO (arXiv 2410.01679), Section 4.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from troupe.aio import gather
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.branch import Branch, BranchContext, Draw
from troupe.episodes.groups import (
    Ending,
    ending_of_branches,
    groups_by_observation,
    groups_by_task,
)
from troupe.episodes.ports import Outcome, Start
from troupe.episodes.seats import play_out
from troupe.samplers.follow import MAX_CONTINUATIONS, FollowSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.workflows.workflow import ResumableWorkflow, Workflow

Continuations = Sequence[Sequence[Branch]]
"""The continuations of each candidate of one act; none of one that ended the episode."""


class FollowedEpisode:
    """The spine of one ticket, and all continuations of its candidates.

    The spine is trajectory 0. The continuation m of candidate k at the n-th followed act is
    trajectory 1 + (n * K + k) * M + m. Seeds derive from these numbers, so all are different and
    none depends on the order in which calls end.
    """

    def __init__(
        self,
        context: BranchContext,
        sampler: FollowSampler,
        workflow: ResumableWorkflow,
        start: Start,
    ) -> None:
        self._context = context
        self._workflow = workflow
        self._spine = _Spine(context, sampler, workflow, start)

    async def play(self) -> "FollowedEpisode":
        """Play the spine to its end, and the continuations; raises the first failing call's error.

        Returns self.
        """
        await play_out(self._workflow.run, self._spine, self._context.spec)
        return self

    def draws(self) -> list[Draw]:
        """The spine's draws, then those of the continuations in order of their numbers."""
        return [*self._spine.draws, *self._later_draws()]

    def groups(self, ticket: pb.Ticket, task_id: str) -> tuple[list[pb.Group], list[pb.Group]]:
        """Groups to train on, and groups that are only shown.

        Trained: one for each followed act, and one by task for each agent that is not followed,
        over its acts in all continuations. Shown: the spine's acts that were not followed.
        """
        siblings = groups_by_observation(ticket, task_id, self._spine.draws)
        followed = {(d.agent, d.turn) for d in self._spine.followed_draws}
        trained = [g for g in siblings if (g.agent, g.turn) in followed]
        later = groups_by_task(ticket, task_id, self._later_draws())
        for group in later:
            if group.agent not in self._spine.agents:
                group.group_id += "/after"
                trained.append(group)
        return trained, [g for g in siblings if (g.agent, g.turn) not in followed]

    def ending(self) -> Ending:
        """The spine's; where it ends with the followed act, that of all continuations.

        All candidates of this act weigh equally, and so do the continuations of a candidate.
        """
        spine = self._spine
        if not spine.ends_followed:
            return ending_of_branches([spine])
        before, last = spine.draws[:-1], spine.draws[-1]
        shares: list[float] = []
        returns: list[float] = []
        for outcome, branches in zip(last.outcomes, spine.continuations[-1], strict=True):
            later = ending_of_branches(branches) if branches else None
            shares.append(later.success_fraction if later else float(outcome.is_success))
            returns.append(outcome.team_reward + (later.team_return if later else 0.0))
        share = _mean(shares)
        ends = [b.num_turns for branches in spine.continuations[-1] for b in branches]
        return Ending(
            is_success=share == 1.0,
            success_fraction=share,
            num_turns=max([spine.num_turns, *ends]),
            team_return=_mean(returns)
            + math.fsum(d.outcomes[d.chosen].team_reward for d in before),
        )

    def _later_draws(self) -> list[Draw]:
        return [
            draw
            for candidates in self._spine.continuations
            for branches in candidates
            for branch in branches
            for draw in branch.draws
        ]


class _Spine(Branch):
    """The trajectory that goes on; its followed acts draw K candidates, all others one."""

    def __init__(
        self,
        context: BranchContext,
        sampler: FollowSampler,
        workflow: ResumableWorkflow,
        start: Start,
    ) -> None:
        super().__init__(context, start, 0)
        self._sampler = sampler
        self._workflow = workflow
        self.agents = sampler.followed(tuple(context.spec.agents))
        self._others_learn = any(
            context.learns(agent) for agent in context.spec.agents if agent not in self.agents
        )
        self.continuations: list[Continuations] = []
        self.followed_draws: list[Draw] = []
        self.ends_followed = False

    def _is_followed(self, agent: str) -> bool:
        """Whether the act teaches anybody: the agent itself, or those who act after it."""
        learns = self._context.learns(agent) or self._others_learn
        return agent in self.agents and learns

    def _num_candidates(self, agent: str) -> int:
        return self._sampler.num_candidates if self._is_followed(agent) else 1

    @property
    def _goes_on_from_one(self) -> bool:
        return False

    async def _values(
        self, agent: str, outcomes: Sequence[Outcome], rewards: list[float]
    ) -> list[float]:
        """The own rewards, plus the mean of what the continuations bring ``agent``."""
        if not self._is_followed(agent):
            return rewards
        first = 1 + len(self.continuations) * len(outcomes) * self._sampler.executions
        candidates = await gather(
            self._continuations(outcome, first + k * self._sampler.executions)
            for k, outcome in enumerate(outcomes)
        )
        self.continuations.append(candidates)
        return [
            reward + _mean([_brought(agent, branch) for branch in branches])
            for reward, branches in zip(rewards, candidates, strict=True)
        ]

    async def _continuations(self, outcome: Outcome, first: int) -> list[Branch]:
        """M continuations from ``outcome``, numbered from ``first``."""
        if outcome.is_done:
            return []
        numbers = range(first, first + self._sampler.executions)
        return await gather(self._continuation(outcome, number) for number in numbers)

    async def _continuation(self, outcome: Outcome, number: int) -> Branch:
        """One candidate at each act, to the end or to the limit of turns of the whole episode."""
        context = replace(self._context, sampler=ParallelSampler(1))
        start = Start("", outcome.state, outcome.observations)
        branch = Branch(context, start, number, acts=self._acts)
        await play_out(self._workflow.resume, branch, context.spec, self._acts)
        return branch

    def _advance(self, outcome: Outcome) -> None:
        last = self.draws[-1]
        is_followed = self._is_followed(last.agent)
        if is_followed:
            self.followed_draws.append(last)
        super()._advance(outcome)
        if is_followed and self._sampler.goes_on is False:
            self.ends_followed = self.is_done = True


def _brought(agent: str, branch: Branch) -> float:
    return math.fsum(draw.brought(agent) for draw in branch.draws)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def resumable(spec: JobSpec, workflow: Workflow, sampler: FollowSampler) -> ResumableWorkflow:
    """``workflow``, checked to be one that can start in any state.

    Raises SpecInvalidError when it is not, or when one task would have too many continuations.
    """
    if not isinstance(workflow, ResumableWorkflow):
        message = (
            f"algorithm '{spec.algorithm.kind}' plays on from the middle of an episode, so the "
            f"state alone must say who acts; '{spec.workflow.kind}' counts turns itself. Use kind "
            "self_play"
        )
        raise SpecInvalidError([Issue("/workflow/kind", message)])
    number = sampler.num_continuations(tuple(spec.agents), spec.workflow.max_turns)
    if number > MAX_CONTINUATIONS:
        message = (
            f"one task could have {number} continuations and {MAX_CONTINUATIONS} are the most; "
            "lower executions, /workflow/max_turns or /algorithm/group_size, or name fewer agents"
        )
        raise SpecInvalidError([Issue("/algorithm/follow/executions", message)])
    return workflow
