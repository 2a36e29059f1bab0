"""Plays an episode again without some of its agents, and credits each agent with its part.

The value of a coalition is the team's return when absent agents take their default action at every
act. Draws are those of the episode: an agent that sees the prompt that it saw there says what it
said there, and a changed prompt is answered with the seed of that act. So an episode and its
coalitions are one draw of the same chance, and a difference between them is due to who was present.

Owns the replays and the credit from them. Never talks to a stream and never retries, like the
player that calls it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.aio import gather
from troupe.candidates import Candidate, Generation
from troupe.episodes.branch import Branch, BranchContext, Draw, seats
from troupe.episodes.forks import ForkedBranch
from troupe.episodes.ports import Start
from troupe.ids import prompt_digest
from troupe.samplers.coalition import MAX_REPLAYS, Coalition, CoalitionSampler
from troupe.spec.issues import Issue, SpecInvalidError, suggest
from troupe.spec.job import JobSpec
from troupe.tasks.family import Observation
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
    jobs = [
        _CoalitionBranch(context, start, number, sampler, branch.draws, coalition)
        for number, branch in enumerate(branches)
        for coalition in coalitions
    ]
    await gather(workflow.run(seats(job, context.spec), job) for job in jobs)
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
    ) -> None:
        absent = (place for place, draw in enumerate(recorded) if draw.agent not in present)
        prefix = recorded[: next(absent, len(recorded))]
        super().__init__(context, start, trajectory, prefix)
        self._sampler = sampler
        self._present = present
        self._recorded = {(draw.agent, draw.turn): draw for draw in recorded}

    async def _sample(self, agent: str, turn: int, observation: Observation) -> Generation:
        draw = self._recorded.get((agent, turn))
        repeats = self._sampler.params.others == "repeat"
        if agent not in self._present or (draw is None and repeats):
            return self._default(agent)
        if draw is not None and (repeats or draw.observation == observation):
            return draw.generation
        return await super()._sample(agent, turn, observation)

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
