"""One trajectory: draws K candidates at each (agent, turn), has them judged, follows one."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from troupe.candidates import GenerateRequest, Generation, ScoreRequest
from troupe.episodes.call_deadlines import CallDeadlines
from troupe.episodes.ports import EnvPort, Outcome, RolloutPort, Start, TeacherPort
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    PromptTooLongError,
    UnimplementedError,
)
from troupe.rewards.mix import RewardMix, check_paid, terms_by_agent
from troupe.samplers.sampler import Sampler
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec
from troupe.spec.policy import teacher_name
from troupe.tasks.actions import is_cut
from troupe.tasks.family import Observation, bound_of, observed_images
from troupe.tasks.program_ends import failed_info
from troupe.workflows.workflow import Action

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Draw:
    """The candidates of one (agent, turn): sampled from one observation, judged in one state.

    ``generate_s`` and ``env_s`` are the wall times of the two calls, queueing included.
    ``shares`` holds for each candidate the reward that its action gave to agents other than
    ``agent``, and ``team_shares`` each agent's weighted share of the team's reward for it.
    """

    agent: str
    turn: int
    policy: str
    trajectory: int
    observation: Observation
    generation: Generation
    outcomes: Sequence[Outcome]
    rewards: Sequence[float]
    chosen: int
    generate_s: float
    env_s: float
    shares: Sequence[Mapping[str, float]] = ()
    team_shares: Sequence[Mapping[str, float]] = ()
    joint_observation: str = ""
    is_baseline: bool = False

    def earned(self, agent: str) -> float:
        """The reward of the executed action for ``agent``."""
        if agent == self.agent:
            return self.rewards[self.chosen]
        return self.shares[self.chosen].get(agent, 0.0) if self.shares else 0.0

    def brought(self, agent: str) -> float:
        """The reward of the executed action for ``agent`` as a team member, whoever acted."""
        if agent == self.agent:
            return self.rewards[self.chosen]
        return self.earned(agent) + self.team_shares[self.chosen].get(agent, 0.0)

    def brought_locally(self, agent: str) -> float:
        """The same without the team's reward."""
        return self.brought(agent) - self.team_shares[self.chosen].get(agent, 0.0)


@dataclass(frozen=True, slots=True)
class BranchContext:
    """What all trajectories of one play of a ticket share.

    ``again`` tells the play from others of its task in the round; empty for the first of them.
    ``team_writes_prompts``: see ``TaskFamily``.
    """

    spec: JobSpec
    sampler: Sampler
    rollout: RolloutPort
    env: EnvPort
    mix: RewardMix
    policy_versions: dict[str, int]
    round_id: str
    task_index: int
    is_eval: bool
    deadlines: CallDeadlines
    step: int = 0
    teacher: TeacherPort | None = None
    team_writes_prompts: bool = False
    again: tuple[str | int, ...] = ()

    def derived_seed(self, *place: str | int) -> int:
        """The seed of what is drawn at ``place`` of this play."""
        path = (self.round_id, self.task_index, *place, *self.again)
        return derive_seed(self.spec.seed, *path)

    def learns(self, agent: str) -> bool:
        """Whether the policy of ``agent`` is trained in this step."""
        return self.spec.learns(self.spec.agents[agent].policy, self.step)

    async def sample(
        self,
        agent: str,
        turn: int,
        trajectory: int,
        observation: Observation,
        num_candidates: int,
        *,
        is_greedy: bool = False,
    ) -> Generation:
        """Candidates of ``agent`` for one observation; randomness depends only on the position."""
        spec = self.spec
        policy = spec.agents[agent].policy
        sampling = spec.sampling_for(agent, evaluate=self.is_eval)
        bound = bound_of(observation)
        if bound is not None and bound < sampling.max_new_tokens:
            sampling = sampling.model_copy(update={"max_new_tokens": bound})
        if is_greedy:
            sampling = sampling.model_copy(update={"temperature": 0.0})
        request = GenerateRequest(
            policy,
            self.policy_versions[policy],
            observation,
            num_candidates,
            sampling,
            self.derived_seed(agent, turn, trajectory),
            follows_updates=spec.updates_in_flight and not self.is_eval,
        )
        generation = await self._generate(request)
        if self.teacher is None or spec.policies[policy].teacher_replicas is None:
            return generation
        if self.is_eval or is_greedy or not self.learns(agent):
            return generation
        return await self._scored(self.teacher, request, generation)

    async def _generate(self, request: GenerateRequest[Observation]) -> Generation:
        """Sample by the job's deadlines, and let them learn how long it took."""
        policy, longest = request.policy, request.sampling.max_new_tokens
        generation, seconds = await self._in_time(
            policy, longest, lambda timeout_s: self.rollout.generate(request, timeout_s=timeout_s)
        )
        grown = max((len(c.token_ids) for c in generation.candidates), default=0)
        self.deadlines.note(policy, grown, seconds)
        return generation

    async def _in_time(
        self, policy: str, longest: int, call: Callable[[float], Awaitable[_T]]
    ) -> tuple[_T, float]:
        """The answer of a call, which gets its timeout, and its seconds; notes one given up."""
        timeout_s, began = self.deadlines.generation_s(policy, longest), time.monotonic()
        try:
            answer = await call(timeout_s)
        except DeadlineError:
            self.deadlines.note(policy, longest, timeout_s)
            raise
        return answer, time.monotonic() - began

    async def _scored(
        self, teacher: TeacherPort, asked: GenerateRequest[Observation], generation: Generation
    ) -> Generation:
        """``generation`` with the scores of the policy's teacher."""
        name, candidates = teacher_name(asked.policy), generation.candidates
        request = ScoreRequest(
            name,
            0,
            asked.prompt,
            generation.prompt_token_ids,
            [candidate.token_ids for candidate in candidates],
        )
        scores, seconds = await self._in_time(
            name,
            asked.sampling.max_new_tokens,
            lambda timeout_s: teacher.score(request, timeout_s=timeout_s),
        )
        self.deadlines.note(name, max(map(len, request.completions)), seconds)
        scored = [
            replace(candidate, teacher_logprobs=logprobs)
            for candidate, logprobs in zip(candidates, scores, strict=True)
        ]
        return replace(generation, candidates=scored)

    async def outcomes(
        self, state: bytes, agent: str, actions: Sequence[str], *, are_observed: bool = True
    ) -> list[Outcome]:
        """One outcome per action. Equal ones are sent once, because an environment is pure.

        Without ``are_observed`` nobody sees what follows; see `observed`.
        """
        keys = [(action, is_cut(action)) for action in actions]
        distinct = dict(zip(keys, actions, strict=True))
        outcomes = await self.env.step(
            state=state,
            agent=agent,
            actions=list(distinct.values()),
            observe=list(self.spec.agents) if are_observed else (),
            timeout_s=self.spec.limits.env_timeout_s * len(distinct),
        )
        for action, paid in zip(distinct.values(), outcomes, strict=True):
            check_paid(self.spec.task.name, agent, action, paid.team_reward, paid.local_rewards)
        by_key = dict(zip(distinct, outcomes, strict=True))
        return [by_key[key] for key in keys]

    async def observed(self, outcome: Outcome) -> Outcome:
        """``outcome`` with what every agent sees after it."""
        observations = await self.env.observations(
            state=outcome.state,
            observe=list(self.spec.agents),
            timeout_s=self.spec.limits.env_timeout_s,
        )
        return replace(outcome, observations=observations)


class Branch:
    """The environment of one trajectory; advanced by the chosen candidate of each act."""

    def __init__(
        self,
        context: BranchContext,
        start: Start,
        trajectory: int,
        *,
        is_baseline: bool = False,
        acts: Mapping[str, int] | None = None,
    ) -> None:
        """``acts`` counts the acts of each agent before ``start``; none when left out."""
        self.is_baseline = is_baseline
        self._context = context
        self._state = start.state
        self._observations = start.observations
        self._trajectory = trajectory
        self._acts: Counter[str] = Counter(acts or {})
        self.is_done = False
        self.is_success = False
        self.draws: list[Draw] = []

    @property
    def num_turns(self) -> int:
        """Turns begun: the largest number of acts of any one agent."""
        return max(self._acts.values(), default=0)

    def observe(self, agent: str) -> Observation:
        """What ``agent`` sees in the current state."""
        return self._observations[agent]

    async def act(self, agent: str, observation: Observation) -> Action:
        """Draw candidates for ``observation``, judge each on its own copy, execute the chosen."""
        if self.is_done:
            raise InvalidArgumentError(
                f"the workflow let '{agent}' act after the environment was done; check env.is_done"
            )
        check_may_act(agent, observation)
        turn = self._acts[agent]
        self._acts[agent] += 1
        began = time.monotonic()
        generation = await self._sample(agent, turn, observation)
        sampled = time.monotonic()
        actions = [c.action for c in generation.candidates]
        # An image costs too much to be drawn and sent for outcomes that nobody will see.
        shows_one = (
            len(set(actions)) > 1 and self._goes_on_from_one and self._has_images(observation)
        )
        outcomes = await self._context.outcomes(
            self._state, agent, actions, are_observed=not shows_one
        )
        judged = time.monotonic()
        terms = [terms_by_agent(agent, outcome.local_rewards) for outcome in outcomes]
        rewards = [
            self._context.mix(agent, outcome.team_reward, by_agent.get(agent, {}))
            for outcome, by_agent in zip(outcomes, terms, strict=True)
        ]
        rewards = await self._values(agent, outcomes, rewards)
        chosen = self._context.sampler.choose(rewards)
        if shows_one:
            outcomes[chosen] = await self._observed(agent, actions[chosen], outcomes[chosen])
        self.draws.append(
            Draw(
                agent=agent,
                turn=turn,
                policy=self._context.spec.agents[agent].policy,
                trajectory=self._trajectory,
                observation=observation,
                generation=generation,
                outcomes=outcomes,
                rewards=rewards,
                chosen=chosen,
                generate_s=sampled - began,
                env_s=judged - sampled,
                shares=[self._shares(agent, by_agent) for by_agent in terms],
                team_shares=[self._team_shares(outcome) for outcome in outcomes],
                joint_observation=self._joint_observation(agent),
                is_baseline=self.is_baseline,
            )
        )
        self._advance(outcomes[chosen])
        return Action(generation.candidates[chosen].text, rewards[chosen])

    def end_unpaid(self, agent: str, error: PromptTooLongError) -> Action:
        """End by the team's doing: the last action led to a prompt of ``agent`` that is too long.

        Raises ``error`` where that is not the team's doing, or nobody has acted.
        """
        if not (self._context.team_writes_prompts and self.draws):
            raise error
        self._acts[agent] -= 1
        last = self.draws[-1]
        outcomes = list(last.outcomes)
        outcomes[last.chosen] = replace(
            outcomes[last.chosen],
            is_done=True,
            info_json=failed_info(outcomes[last.chosen].info_json, "prompt_too_long", error),
        )
        self.draws[-1] = replace(last, outcomes=outcomes)
        self.is_done = True
        return Action("", 0.0)

    async def _observed(self, agent: str, action: str, outcome: Outcome) -> Outcome:
        """``outcome`` of ``action`` with what every agent sees after it."""
        try:
            return await self._context.observed(outcome)
        except UnimplementedError:  # an older env service shows only what it judges: judge again
            [again] = await self._context.outcomes(self._state, agent, [action])
            return replace(outcome, observations=again.observations)

    async def _sample(self, agent: str, turn: int, observation: Observation) -> Generation:
        return await self._context.sample(
            agent,
            turn,
            self._trajectory,
            observation,
            self._num_candidates(agent),
            is_greedy=self.is_baseline,
        )

    def _num_candidates(self, agent: str) -> int:
        """K; 1 for an agent that does not learn: it needs no siblings, and plays its first."""
        context = self._context
        return context.sampler.num_candidates if context.learns(agent) or context.is_eval else 1

    @property
    def _goes_on_from_one(self) -> bool:
        """Whether the chosen outcome alone is gone on with."""
        return True

    def _has_images(self, observation: Observation) -> bool:
        """Whether any agent sees images; first the actor's ``observation``, decoded already."""
        return bool(observed_images(observation)) or any(
            map(observed_images, self._observations.values())
        )

    async def _values(
        self, agent: str, outcomes: Sequence[Outcome], rewards: list[float]
    ) -> list[float]:
        """What the candidates are compared by: their mixed rewards."""
        return rewards

    def _team_shares(self, outcome: Outcome) -> dict[str, float]:
        agents = self._context.spec.agents
        return {agent: self._context.mix(agent, outcome.team_reward, {}) for agent in agents}

    def _joint_observation(self, agent: str) -> str:
        """What every agent sees now, and which acts; "" unless the sampler needs it."""
        if not self._context.sampler.sees_jointly:
            return ""
        parts = [
            "\n".join([f"[{name}]", *(f"{m.role}: {m.described}" for m in messages)])
            for name, messages in self._observations.items()
        ]
        return "\n\n".join([*parts, f"[{agent}] acts"])

    def _shares(self, actor: str, terms: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Weighted terms of the job's other agents; seats outside the job get none."""
        mix, agents = self._context.mix, self._context.spec.agents
        return {
            agent: mix(agent, 0.0, agent_terms)
            for agent, agent_terms in terms.items()
            if agent != actor and agent in agents
        }

    def _advance(self, outcome: Outcome) -> None:
        self._state = outcome.state
        self._observations = outcome.observations
        self.is_done = outcome.is_done
        self.is_success = outcome.is_success


def check_may_act(agent: str, observation: Observation) -> None:
    """Raise InvalidArgumentError when ``agent`` sees nothing and so has nothing to decide."""
    if not observation:
        raise InvalidArgumentError(
            f"the workflow let '{agent}' act when it had nothing to decide (its observation is "
            "empty: another seat is to move); use workflow kind self_play"
        )
