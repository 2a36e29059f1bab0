"""JobSpec: what to learn. REST body, YAML file, JSON schema and docs are this one class.

Where things run (addresses, limits of a process, paths of a machine) is never here: see the
Settings class of each service.
"""

from typing import Any, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.base import MAX_NAMED, Name, PluginParams, SpecModel, is_empty
from troupe.spec.batch import BatchSpec
from troupe.spec.bundle import BundleSpec
from troupe.spec.policy import PolicySpec, teacher_name
from troupe.spec.reward import RewardPart, RewardSpec

_LOWEST_TEMPERATURE = 1e-6
"""Below it logits overflow when they are divided by it, and SGLang samples greedily."""
_WEEK_S = 7 * 86_400.0
_PULL_S = 1800.0


class TaskSpec(SpecModel):
    """The task family and its parameters."""

    name: str
    """Registered name (`troupe.tasks` entry point), `module:attr` or `file.py:attr`."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the family, checked by the family's model."""


class WorkflowSpec(SpecModel):
    """Which agents act, in which order, for how many turns."""

    kind: str = "turn_based"
    """Registered name (`troupe.workflows` entry point), `module:attr` or `file.py:attr`."""
    order: list[str] = Field(min_length=1, max_length=MAX_NAMED)
    """Agents in the order in which they act inside one turn."""
    max_turns: int = Field(default=4, ge=1, le=1000)
    """Largest number of turns; then an episode ends, solved or not."""
    params: PluginParams = Field(default_factory=dict, exclude_if=is_empty)
    """Parameters of the workflow, checked by its model `Params`."""


class SamplingSpec(SpecModel):
    """How completions are drawn."""

    temperature: float = Field(default=1.0, ge=0.0, le=10.0)
    """Softmax temperature: 0 (greedy), or 0.000001 and more."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus mass; with less than 1 the ratio is biased, so agents that learn are refused it."""
    top_k: int = Field(default=0, ge=0, le=2**31 - 1)
    """Keep the k most probable tokens; 0 keeps all, as agents that learn must."""
    max_new_tokens: int = Field(default=256, ge=1, le=131072)
    """Largest number of tokens in a completion."""
    stop: list[str] = Field(default_factory=list)
    """Strings that end a completion."""

    @field_validator("temperature")
    @classmethod
    def _must_be_computable(cls, temperature: float) -> float:
        if 0.0 < temperature < _LOWEST_TEMPERATURE:
            raise ValueError(f"must be 0 (greedy) or at least {_LOWEST_TEMPERATURE:f}")
        return temperature


class AgentSpec(SpecModel):
    """One seat of the team."""

    policy: str
    """Name of the policy that this agent samples from."""
    sampling: SamplingSpec | None = None
    """Overrides the job's sampling for this agent: what is left out here is the job's."""


class RolloutSpec(SpecModel):
    """Which processes answer. Never changes what is learnt."""

    per_policy: bool = Field(default=False, exclude_if=is_empty)
    """One pool of rollout replicas for each policy; false: LoRA policies of one `model` and `dtype`
    share a pool, whose servers hold the model once. Full weights never share one."""


class TrainerSpec(SpecModel):
    """Which processes learn. Never changes what is learnt."""

    per_policy: bool = False
    """One trainer process for each policy, so that all policies learn at once; false: one trainer
    learns all of them, one after another. Refused for algorithms that look across policies."""
    gpus: int | None = Field(default=None, ge=1, le=1024, exclude_if=lambda gpus: gpus is None)
    """GPUs of each trainer, which share its weights: one process (rank) runs on each, and without
    GPUs so many run on the CPU. Left out: as many as the installation gives a trainer."""
    offload: bool = Field(default=False, exclude_if=lambda is_on: not is_on)
    """Keep the weights of several ranks, their gradients and Adam's moments in the host's memory:
    slower, where the GPUs would be too small. Each layer comes to the GPU when it is computed."""


class EvalSpec(SpecModel):
    """Evaluation on tasks that are never trained on."""

    num_tasks: int = Field(default=200, ge=0, le=1_000_000)
    """Held-out instances; 0 turns evaluation off."""
    split: Literal["validation", "test"] = "test"
    """Split that the instances come from."""
    every: int = Field(default=0, ge=0)
    """Steps between evaluations; 0: only before the first step and after the last."""
    sampling: SamplingSpec | None = None
    """Overrides the agents' sampling in evaluation: what is left out here is theirs. All five
    fields with `max_new_tokens: 256` and `stop: []` are read as an earlier version's, which wrote
    them all: these two are the agents' then."""

    @field_serializer("sampling")
    def _set_alone(self, sampling: SamplingSpec | None) -> dict[str, Any] | None:
        """What is left out stays so wherever the spec is read again."""
        return None if sampling is None else sampling.model_dump(exclude_unset=True)

    def overrides(self) -> dict[str, Any]:
        """The fields of ``sampling`` that are set.

        Earlier versions wrote all five, set or not, and took the limit of the agents.
        """
        if self.sampling is None:
            return {}
        found = self.sampling.model_dump(exclude_unset=True)
        usual = SamplingSpec().model_dump(include={"max_new_tokens", "stop"})
        if len(found) == len(SamplingSpec.model_fields) and found | usual == found:
            return {name: value for name, value in found.items() if name not in usual}
        return found


class MonitorSpec(SpecModel):
    """Watches whether the reward still means what it should (the event `reward.suspect`), and
    whether agent programs fail (`program.failing`)."""

    is_on: bool = True
    """False: no event."""
    window: int = Field(default=8, ge=4, le=200)
    """Steps before and after a change that are compared, at most."""
    false_alarm_rate: float = Field(default=1e-4, gt=0.0, le=0.1)
    """Chance that a step of a job without a change is called suspect, at most."""
    failed_programs: float = Field(
        default=0.2, ge=0.0, le=1.0, exclude_if=lambda share: share == 0.2
    )
    """Share of a round's agent programs that may fail; above it the event `program.failing` says
    why and what to do."""


class CheckpointSpec(SpecModel):
    """When the trainer writes checkpoints, and which it keeps."""

    every: int = Field(default=1, ge=1)
    """Steps between checkpoints; Redis keeps groups until a checkpoint covers them."""
    keep_last: int = Field(default=2, ge=1)
    """How many of the newest checkpoints are kept."""
    keep_best: int = Field(default=0, ge=0)
    """How many further checkpoints are kept: those of the highest mean reward in training. Refused
    with `algorithm.alternate`."""


class LimitsSpec(SpecModel):
    """Deadlines and budgets: no part of a job waits for ever."""

    generate_timeout_s: float | None = Field(
        default=None, gt=0.0, exclude_if=lambda timeout_s: timeout_s is None
    )
    """Longest Generate call, retries included. Left out: 120 s and the time of `max_new_tokens` at
    the slowest speed that the model's size allows, or at a quarter of the observed one if that is
    slower; `troupe plan` says it."""
    env_timeout_s: float = Field(default=60.0, gt=0.0)
    """Longest Reset call, retries included; a Step has this time for each of its actions, since
    programs of several candidates may wait for each other."""
    episode_timeout_s: float | None = Field(
        default=None, gt=0.0, exclude_if=lambda timeout_s: timeout_s is None
    )
    """Longest episode; after that its ticket is tried again. Left out: 900 s and the time of
    `max_new_tokens` of every turn, as for `generate_timeout_s`."""
    step_timeout_s: float = Field(default=3600.0, gt=0.0)
    """Longest step; after that the job fails and names what it waited for. Begins anew when a
    paused job is resumed, and after a minute or more in which no router conducted the job."""
    phase_deadline_s: float = Field(default=600.0, gt=0.0)
    """Longest phase of a step; after that the event `phase.overdue` names what it waits for."""
    startup_timeout_s: float = Field(default=300.0, gt=0.0)
    """Longest time from launch until every service of the job serves, beside the time that its
    models' bytes take. Does not count while a cluster pulls images or its queue holds the job.
    Begins anew after a minute or more in which no router conducted the job."""
    image_pull_timeout_s: float = Field(
        default=_PULL_S, gt=0.0, exclude_if=lambda timeout_s: timeout_s == _PULL_S
    )
    """Longest time for which a cluster's nodes pull the images of the job's pods, half an hour if
    left out. Begins anew with the router that conducts it."""
    queue_timeout_s: float = Field(
        default=_WEEK_S, gt=0.0, exclude_if=lambda timeout_s: timeout_s == _WEEK_S
    )
    """Longest time for which a cluster's queue (Kueue) holds any process of the job back, seven
    days if left out; after that the job fails. Begins anew with the router that conducts it."""
    max_attempts: int = Field(default=5, ge=1)
    """Failed plays of one ticket before it is parked and its groups count as dropped."""
    max_dropped_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    """Largest fraction of a step's tickets that may be dropped; beyond it the job fails."""
    tail_timeout_s: float | None = Field(
        default=None, gt=0.0, exclude_if=lambda timeout_s: timeout_s is None
    )
    """Longest time for which a training round waits for its last tickets, once no more than
    `max_dropped_fraction` of its tickets is left; then those are dropped and counted. Which ones
    depends on the clock, so the same seed no longer gives the same weights. Left out: no limit."""
    episodes_in_flight: int = Field(default=64, ge=1, le=100_000)
    """Episodes that one worker plays at once."""


class TrackerSpec(SpecModel):
    """An experiment tracker that receives the job's metrics. It can never stop the job."""

    kind: str
    """`csv`, `tensorboard`, `wandb`, `mlflow`, another `troupe.trackers` entry point, or
    `module:attr`."""
    project: str = ""
    """Project or experiment; the job's name when left out."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the tracker. Keys and passwords come from the router's environment instead."""


class JobSpec(SpecModel):
    """A complete training job: the same spec and seed give the same curves."""

    name: Name
    """Name of the job and part of its run folder's name."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed from which all randomness of the job derives."""
    steps: int = Field(ge=0, le=1_000_000)
    """Number of training steps; 0 only evaluates."""
    tasks_per_step: int = Field(default=32, ge=1, le=100_000)
    """Number of task instances that a step plays."""
    max_staleness: int = Field(default=0, ge=0, le=16)
    """Largest number of steps by which the weights that sampled a group may lag behind those that
    it trains. Above 0 the next step is played while the trainer learns; 0: strictly on-policy."""
    updates_in_flight: bool = Field(default=False, exclude_if=is_empty)
    """With max_staleness above 0: answers that are being sampled when a new version comes go on
    with it, and their groups record which version sampled which token. Engine `cpu`; `sglang` lets
    each answer end with the version that began it."""
    task: TaskSpec
    """The task of the team."""
    bundle: BundleSpec | None = Field(default=None, exclude_if=lambda bundle: bundle is None)
    """Uploaded code that the task or the reward function is of."""
    workflow: WorkflowSpec
    """Which agent acts when."""
    agents: dict[Name, AgentSpec] = Field(min_length=1, max_length=MAX_NAMED)
    """Agent -> policy. This map alone decides who shares weights, an adapter or a model."""
    policies: dict[Name, PolicySpec] = Field(min_length=1, max_length=MAX_NAMED)
    """Weights to train; a policy that no agent samples from is left out."""
    algorithm: AlgorithmSpec = AlgorithmSpec()
    """The algorithm that trains the policies."""
    reward: RewardPart = RewardSpec()
    """The reward."""
    sampling: SamplingSpec = SamplingSpec()
    """Sampling of agents, but for what they set themselves."""
    batch: BatchSpec = BatchSpec()
    """Layout of sequences in the trainer."""
    rollout: RolloutSpec = Field(default=RolloutSpec(), exclude_if=lambda part: not part.per_policy)
    """Which rollout replicas share policies."""
    trainer: TrainerSpec = TrainerSpec()
    """One trainer, or one for each policy."""
    eval: EvalSpec = EvalSpec()
    """Held-out evaluation."""
    monitor: MonitorSpec = MonitorSpec()
    """Alarms about the reward."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """Checkpoints, for resuming."""
    limits: LimitsSpec = LimitsSpec()
    """Deadlines."""
    trackers: tuple[TrackerSpec, ...] = Field(default=(), max_length=8)
    """Experiment trackers, besides the files in the run folder."""

    @model_validator(mode="after")
    def _leave_out_unused(self) -> "JobSpec":
        """Drop policies without an agent, so that the agents' map alone sets the policy level."""
        used = {agent.policy for agent in self.agents.values()}
        if used <= self.policies.keys():  # a wrong name is an issue, which suggests the others
            policies = {name: policy for name, policy in self.policies.items() if name in used}
            object.__setattr__(self, "policies", policies)
        return self

    @model_validator(mode="after")
    def _fill_in_sampling(self) -> "JobSpec":
        """Give agents what their sampling leaves out, so that a stored spec says all of it."""
        agents = dict(self.agents)
        for name, agent in self.agents.items():
            if agent.sampling is not None:
                own = agent.sampling.model_dump(exclude_unset=True)
                filled = self.sampling.model_copy(update=own)
                agents[name] = agent.model_copy(update={"sampling": filled})
        object.__setattr__(self, "agents", agents)
        return self

    @model_validator(mode="after")
    def _names_must_match(self) -> "JobSpec":
        from troupe.spec.checks import cross_field_issues
        from troupe.spec.issues import raise_if_any

        raise_if_any(type(self).__name__, cross_field_issues(self))
        return self

    def trains(self, policy: str) -> bool:
        """Whether ``policy`` ever learns: past versions and frozen policies do not."""
        return self.policies[policy].past is None and not self.policies[policy].frozen

    def teachers(self) -> dict[str, PolicySpec]:
        """The teachers that rollout replicas serve, by their names there.

        They are no policies of the job: nothing is sampled from them, no trainer loads them, and
        the only version is 0, their model.
        """
        served = {name: policy.served_teacher() for name, policy in self.policies.items()}
        return {teacher_name(name): of for name, of in served.items() if of is not None}

    def served(self) -> dict[str, PolicySpec]:
        """All that rollout replicas serve: the policies, and teachers."""
        return self.policies | self.teachers()

    def trainers(self) -> tuple[str, ...]:
        """The policy that each trainer process learns; "" is the one trainer of all policies."""
        return tuple(sorted(self.policies)) if self.trainer.per_policy else ("",)

    def learns(self, policy: str, step: int) -> bool:
        """Whether ``policy`` learns in training step ``step``: it trains, and it is its turn."""
        turns = self.algorithm.alternate
        if turns is None or policy not in turns.order:
            return self.trains(policy)
        return turns.order[step // turns.every % len(turns.order)] == policy

    def eval_steps(self) -> list[int]:
        """Steps after which the job is evaluated: before the first, after the last, as set."""
        if not self.eval.num_tasks:
            return []
        every = self.eval.every
        return sorted({0, *(range(every, self.steps, every) if every else ()), self.steps})

    def models(self) -> dict[str, str]:
        """Every model that the job names, by JSON pointer: of policies, teachers and the critic."""
        models = {
            f"/policies/{name}/{field}": model
            for name, policy in self.policies.items()
            for field, model in policy.models().items()
        }
        critic = self.algorithm.critic
        if critic is not None and critic.model is not None:
            models["/algorithm/critic/model"] = critic.model
        return models

    def sampling_for(self, agent: str, *, evaluate: bool = False) -> SamplingSpec:
        """Sampling of ``agent``: its own, else the job's; with what evaluation overrides of it."""
        sampling = self.agents[agent].sampling or self.sampling
        return sampling.model_copy(update=self.eval.overrides()) if evaluate else sampling

    def sampling_pointer(self, agent: str, field: str) -> str:
        """JSON pointer of ``field`` of the sampling of ``agent``: its own, else the job's."""
        own = self.agents[agent].sampling
        is_own = own is not None and getattr(own, field) != getattr(self.sampling, field)
        return f"/agents/{agent}/sampling/{field}" if is_own else f"/sampling/{field}"

    def longest_completion(self, agent: str) -> int:
        """Tokens that ``agent`` may write at once, in training or in evaluation."""
        both = (False, True) if self.eval.num_tasks else (False,)
        return max(self.sampling_for(agent, evaluate=each).max_new_tokens for each in both)
