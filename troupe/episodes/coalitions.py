"""Plays an episode again without some of its agents, and credits each agent with its part.

The value of a coalition is the team's return when absent agents take their default action at every
act. Draws are those of the episode: an agent that sees the prompt that it saw there says what it
said there, and a changed prompt is answered once for all coalitions in which the act has it, with
the seed of that act. So an episode and its coalitions are one draw of the same chance, also where
an engine heeds no seeds, and a difference between them is due to who was present.

Owns the replays and the credit from them. Never talks to a stream and never retries, like the
player that calls it.
"""

import asyncio
import math
from asyncio import Future
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from troupe.aio import gather
from troupe.candidates import Candidate, Generation
from troupe.episodes.branch import Branch, BranchContext, Draw
from troupe.episodes.forks import ForkedBranch
from troupe.episodes.ports import Start
from troupe.episodes.seats import play_out
from troupe.ids import prompt_digest
from troupe.samplers.coalition import MAX_REPLAYS, Coalition, CoalitionSampler
from troupe.spec.issues import Issue, SpecInvalidError, suggest
from troupe.spec.job import JobSpec
from troupe.tasks.family import Observation, bound_of, tools_of
from troupe.workflows.workflow import Workflow


@dataclass(frozen=True, slots=True)
class TeamCredit:
    """What each agent is paid in place of the team's return, by (agent, trajectory), weighted as
    the job weighs that return; and the draws that it took.
    """

    parts: dict[tuple[str, int], float]
    replayed: Sequence[Draw]


async def team_credit(
    context: BranchContext,
    sampler: CoalitionSampler,
    workflow: Workflow,
    start: Start,
    branches: Sequence[Branch],
) -> TeamCredit:
    """Play the coalitions of all ``branches``; raises the error of the first failing call."""
    agents = tuple(context.spec.agents)
    coalitions = sampler.coalitions(agents)
    answers = [_Answers(branch.draws) for branch in branches]
    jobs = [
        _CoalitionBranch(context, start, number, sampler, branch.draws, coalition, answers[number])
        for number, branch in enumerate(branches)
        for coalition in coalitions
    ]
    await gather(play_out(workflow.run, job, context.spec) for job in jobs)
    returns = iter([team_return(job.draws) for job in jobs])
    parts: dict[tuple[str, int], float] = {}
    for number, branch in enumerate(branches):
        values = {coalition: next(returns) for coalition in coalitions}
        values[Coalition(agents)] = whole = team_return(branch.draws)
        for agent, part in sampler.credit(agents, values).items():
            paid = sampler.params.team_weight * whole + sampler.params.credit_weight * part
            parts[agent, number] = context.mix(agent, paid, {})
    return TeamCredit(parts, [draw for job in jobs for draw in job.draws])


def team_return(draws: Sequence[Draw]) -> float:
    """The team's reward of all executed actions, unweighted."""
    return math.fsum(draw.outcomes[draw.chosen].team_reward for draw in draws)


class _Answers:
    """What was said in an episode and in its coalitions, by act and prompt: each is drawn once."""

    def __init__(self, recorded: Sequence[Draw]) -> None:
        self._found: defaultdict[tuple[str, int], list[tuple[Observation, Future[Generation]]]]
        self._found = defaultdict(list)
        for draw in recorded:
            said = asyncio.get_running_loop().create_future()
            said.set_result(draw.generation)
            self._found[draw.agent, draw.turn].append((draw.observation, said))

    async def to(
        self,
        observation: Observation,
        act: tuple[str, int],
        sample: Callable[[], Coroutine[Any, Any, Generation]],
    ) -> Generation:
        """What was said to ``observation`` at ``act``, (agent, turn); the first to ask samples."""
        bounds = bound_of(observation), tools_of(observation)
        for seen, said in self._found[act]:
            if seen == observation and (bound_of(seen), tools_of(seen)) == bounds:
                return await said
        said = asyncio.ensure_future(sample())
        self._found[act].append((observation, said))
        return await said


class _CoalitionBranch(ForkedBranch):
    """The episode up to the first act of an absent agent, and on from there without the absent."""

    def __init__(
        self,
        context: BranchContext,
        start: Start,
        trajectory: int,
        sampler: CoalitionSampler,
        recorded: Sequence[Draw],
        present: Coalition,
        answers: _Answers,
    ) -> None:
        absent = (place for place, draw in enumerate(recorded) if draw.agent not in present)
        prefix = recorded[: next(absent, len(recorded))]
        super().__init__(context, start, trajectory, prefix)
        self._sampler = sampler
        self._present = present
        self._recorded = {(draw.agent, draw.turn): draw for draw in recorded}
        self._answers = answers

    async def _sample(self, agent: str, turn: int, observation: Observation) -> Generation:
        if agent not in self._present:
            return self._default(agent)
        if self._sampler.params.others == "repeat":
            draw = self._recorded.get((agent, turn))
            return self._default(agent) if draw is None else draw.generation
        sample = partial(super()._sample, agent, turn, observation)
        return await self._answers.to(observation, (agent, turn), sample)

    def _default(self, agent: str) -> Generation:
        """The default action; no tokens, because nothing was sampled."""
        policy = self._context.spec.agents[agent].policy
        text = self._sampler.default_action(agent)
        said = Candidate((), (), text, "stop")
        version = self._context.policy_versions[policy]
        return Generation((), prompt_digest(()), [said], version, 0.0)


def check_coalitions(spec: JobSpec, sampler: CoalitionSampler) -> None:
    """Raise SpecInvalidError for a team or a number of replays that is too large, or a default
    action of no agent of the job.
    """
    agents = tuple(spec.agents)
    issues = [
        Issue(
            f"/algorithm/params/default_actions/{agent}",
            f"no agent is called '{agent}'; {suggest(agent, agents)}",
        )
        for agent in sampler.params.default_actions
        if agent not in spec.agents
    ]
    most = sampler.most_agents
    if most is not None and len(agents) > most:
        message = (
            f"'{spec.algorithm.kind}' plays every coalition of the team, {2 ** len(agents)} of "
            f"{len(agents)} agents, and takes at most {most} agents; use ccpo, which plays one for "
            "each agent"
        )
        issues.append(Issue("/algorithm/kind", message))
    else:
        number = sampler.num_trajectories * len(sampler.coalitions(agents))
        if number > MAX_REPLAYS:
            message = f"one task would be replayed {number} times, and {MAX_REPLAYS} are the most"
            issues.append(Issue("/algorithm/group_size", f"{message}; lower it"))
    if spec.reward.team_weight == 0.0:
        field, instead = ("mode", "add") if spec.reward.mode == "replace" else ("alpha", "above 0")
        message = (
            f"'{spec.algorithm.kind}' shares out the team's reward, which counts nothing here; set "
            f"{instead}, or use grpo"
        )
        issues.append(Issue(f"/reward/{field}", message))
    if issues:
        raise SpecInvalidError(issues)
