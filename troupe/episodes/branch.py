"""One trajectory of an episode: its present state, and every draw of candidates on the way."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.episodes.ports import EnvPort, Generation, Outcome, RolloutPort, Start
from troupe.errors import InvalidArgumentError
from troupe.rewards.mix import RewardMix
from troupe.samplers.contract import Sampler
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec
from troupe.tasks.contract import Observation
from troupe.workflows.contract import Action


@dataclass(frozen=True, slots=True)
class Draw:
    """The candidates of one (agent, turn): drawn from one observation, judged from one state."""

    agent: str
    turn: int
    policy: str
    trajectory: int
    generation: Generation
    outcomes: Sequence[Outcome]
    rewards: Sequence[float]
    chosen: int


@dataclass(frozen=True, slots=True)
class BranchContext:
    """What all trajectories of one ticket share."""

    spec: JobSpec
    sampler: Sampler
    rollout: RolloutPort
    env: EnvPort
    mix: RewardMix
    policy_versions: dict[str, int]
    round_id: str
    task_index: int
    is_eval: bool


class Branch:
    """The environment of one trajectory; advanced by the chosen candidate of each act."""

    def __init__(self, context: BranchContext, start: Start, trajectory: int) -> None:
        self._context = context
        self._state = start.state
        self._observations = dict(start.observations)
        self._trajectory = trajectory
        self._acts: Counter[str] = Counter()
        self.is_done = False
        self.is_success = False
        self.draws: list[Draw] = []

    @property
    def num_turns(self) -> int:
        """Turns begun: the most often that any one agent acted."""
        return max(self._acts.values(), default=0)

    def observe(self, agent: str) -> Observation:
        """What ``agent`` sees in the present state."""
        return self._observations[agent]

    async def act(self, agent: str, observation: Observation) -> Action:
        """Draw candidates from ``observation``, judge each on its own copy, keep the chosen."""
        if self.is_done:
            raise InvalidArgumentError(
                f"the workflow let '{agent}' act after the environment was done; check env.is_done"
            )
        turn = self._acts[agent]
        self._acts[agent] += 1
        generation = await self._sample(agent, turn, observation)
        outcomes = await self._judge(agent, [c.text for c in generation.candidates])
        rewards = [self._context.mix(agent, o.team_reward, o.local_rewards) for o in outcomes]
        chosen = self._context.sampler.choose(rewards)
        policy = self._context.spec.agents[agent].policy
        self.draws.append(
            Draw(agent, turn, policy, self._trajectory, generation, outcomes, rewards, chosen)
        )
        self._advance(outcomes[chosen])
        return Action(generation.candidates[chosen].text, rewards[chosen])

    async def _sample(self, agent: str, turn: int, observation: Observation) -> Generation:
        context = self._context
        spec = context.spec
        policy = spec.agents[agent].policy
        path = (context.round_id, context.task_index, agent, turn, self._trajectory)
        return await context.rollout.generate(
            policy=policy,
            policy_version=context.policy_versions[policy],
            observation=observation,
            num_candidates=context.sampler.num_candidates,
            sampling=spec.sampling_for(agent, evaluate=context.is_eval),
            seed=derive_seed(spec.seed, *path),
            timeout_s=spec.limits.generate_timeout_s,
        )

    async def _judge(self, agent: str, actions: Sequence[str]) -> list[Outcome]:
        """One outcome an action. Equal texts are judged once: step is a pure function."""
        context = self._context
        distinct = list(dict.fromkeys(actions))
        outcomes = await context.env.step(
            state=self._state,
            agent=agent,
            actions=distinct,
            observe=list(self._observations),
            timeout_s=context.spec.limits.env_timeout_s,
        )
        by_text = dict(zip(distinct, outcomes, strict=True))
        return [by_text[text] for text in actions]

    def _advance(self, outcome: Outcome) -> None:
        self._state = outcome.state
        self._observations = dict(outcome.observations)
        self.is_done = outcome.is_done
        self.is_success = outcome.is_success
