"""JobSpec: what to learn. REST body, YAML file, JSON schema and docs are this one class.

Where things run (addresses, limits of a process, paths of a machine) is never here: see the
Settings class of each service.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9_-]{0,38}[a-z0-9])?$")]
"""Lower-case letters, digits, '-' and '_'; starts with a letter; at most 40 characters."""


MAX_NAMED = 256
"""Agents, and policies, of one job. Checks compare names with names, so their time is bounded."""


PluginParams = dict[str, Any]
"""Parameters that only the plug-in knows: its model checks them when it is loaded."""


def _is_empty(value: Any) -> bool:
    """A part that is not given is not written: spec.json and digests stay as they are."""
    return not value


class SpecModel(BaseModel):
    """Base of every part of a spec: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TaskSpec(SpecModel):
    """Which task family, with which parameters."""

    name: str
    """Registered name (`troupe.tasks` entry point) or `module:attr`."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the family, checked by the family's own model."""


class WorkflowSpec(SpecModel):
    """Who acts, in which order, for how long."""

    kind: str = "turn_based"
    """Registered name (`troupe.workflows` entry point) or `module:attr`."""
    order: list[str] = Field(min_length=1, max_length=MAX_NAMED)
    """Agents in the order in which they act inside one turn."""
    max_turns: int = Field(default=4, ge=1, le=1000)
    """Turns after which an episode ends, solved or not."""
    params: PluginParams = Field(default_factory=dict, exclude_if=_is_empty)
    """Parameters of the workflow, checked by its own model `Params`."""


class SamplingSpec(SpecModel):
    """How completions are drawn."""

    temperature: float = Field(default=1.0, ge=0.0, le=10.0)
    """Softmax temperature; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus mass; training with less than 1 biases the ratio and is refused."""
    top_k: int = Field(default=0, ge=0)
    """Keep the k most probable tokens; 0 keeps all; training with more than 0 is refused."""
    max_new_tokens: int = Field(default=256, ge=1, le=131072)
    """Largest number of tokens in a completion."""
    stop: list[str] = Field(default_factory=list)
    """Strings that end a completion."""


class AgentSpec(SpecModel):
    """One seat of the team."""

    policy: str
    """Name of the policy that this agent samples from."""
    sampling: SamplingSpec | None = None
    """Overrides the job's sampling for this agent."""


class LoraSpec(SpecModel):
    """Train a low-rank adapter (peft)."""

    kind: Literal["lora"] = "lora"
    """Selects LoRA."""
    rank: int = Field(default=16, ge=1, le=1024)
    """Rank r of the update matrices."""
    alpha: float = Field(default=32.0, gt=0.0)
    """Scale: the update is multiplied by alpha / rank."""
    targets: list[str] | Literal["all-linear"] = "all-linear"
    """Module names that get an adapter."""


class FullSpec(SpecModel):
    """Train all weights."""

    kind: Literal["full"] = "full"
    """Selects full weights."""


class OptimizerSpec(SpecModel):
    """AdamW and its schedule."""

    learning_rate: float = Field(default=1e-4, gt=0.0, le=1.0)
    """Peak learning rate. LoRA wants about ten times that of full weights."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Shape after the warm-up, over the whole job."""
    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer steps from 0 to the peak, linear."""
    min_ratio: float = Field(default=0.1, ge=0.0, le=1.0)
    """Learning rate at the end of cosine or linear, as a fraction of the peak."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled weight decay."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Adam's first-moment decay."""
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Adam's second-moment decay."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients are clipped to this global L2 norm."""


class PastSpec(SpecModel):
    """Weights that are not trained: an opponent, or a partner, from the past."""

    of: Name
    """Policy whose past weights these are, or that plays against them."""
    every: int = Field(default=0, ge=0)
    """Take over that policy's weights after every so many steps; 0: stay as `model` is."""


class PolicySpec(SpecModel):
    """One set of weights that agents sample from and that is trained."""

    model: str = Field(min_length=1)
    """Local folder or hub id of a transformers causal language model."""
    train: Annotated[LoraSpec | FullSpec, Field(discriminator="kind")] = LoraSpec()
    """What is trained."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """How it is trained."""
    replicas: int = Field(default=1, ge=1, le=256)
    """Rollout replicas that serve this policy."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the weights in trainer and engine."""
    past: PastSpec | None = None
    """Makes it a past version of another policy, or a frozen model, that is never trained."""
    frozen: bool = False
    """Its agents play and it never learns: the model stays as the job found it."""


class KlSpec(SpecModel):
    """KL divergence to the reference: the policy as the job found it (adapter off, or a copy)."""

    coef: float = Field(default=0.0, ge=0.0)
    """Weight; 0 computes no reference."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Schulman's estimators; k1 has no useful gradient and is for the reward only."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss of each token, or taken off the candidate's reward."""


class ImportanceSpec(SpecModel):
    """Truncated importance sampling: corrects what engine and trainer compute differently."""

    level: Literal["token", "sequence"] = "token"
    """One weight a token, or the product over a completion."""
    cap: float = Field(default=2.0, gt=0.0)
    """Weights are cut to this."""


class LossSpec(SpecModel):
    """Policy-gradient loss."""

    kind: Literal["ppo_clip", "gspo", "cispo"] = "ppo_clip"
    """ppo_clip: token ratio; gspo: one ratio a completion (clip it at about 3e-4); cispo: clips
    the weight and keeps every token's gradient."""
    clip_low: float = Field(default=0.2, gt=0.0, le=1.0)
    """Ratio is clipped below 1 - clip_low; 1 does not clip it."""
    clip_high: float = Field(default=0.2, gt=0.0)
    """Ratio is clipped above 1 + clip_high."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """ppo_clip: largest ratio that a negative advantage is multiplied by; left out: no limit."""
    entropy_coef: float = Field(default=0.0, ge=0.0)
    """Weight of an entropy bonus, per token."""
    kl: KlSpec = KlSpec()
    """Pull towards the reference."""
    importance: ImportanceSpec | None = None
    """Correction of the rollout engine's probabilities; costs one more forward pass."""


class FilterSpec(SpecModel):
    """What is left out of the loss and of its denominator; everything left out is counted."""

    truncated: bool = False
    """Completions that ran into max_new_tokens (overlong filtering)."""
    zero_variance: bool = False
    """Groups whose advantages are all 0; otherwise they dilute the step by their tokens."""


class JointSpec(SpecModel):
    """Joint actions of agents that act at once, and the tree that they span over the turns."""

    mode: Literal["aligned", "cross"] = "aligned"
    """aligned: the k-th candidates of all agents, K joint actions a node; cross: every combination,
    K ** agents."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount of what the next turn brings."""


class CriticSpec(SpecModel):
    """A value function, and the advantages that are estimated with it."""

    kind: Literal["model", "head"] = "model"
    """model: a network of its own; head: a linear head on the policy's features, which it reads
    and does not move."""
    model: str | None = None
    """Local folder or hub id of the critic's network; the policy's own when left out."""
    train: Annotated[LoraSpec | FullSpec, Field(discriminator="kind")] = LoraSpec()
    """What of the critic's network is trained beside its head."""
    learning_rate: float = Field(default=1e-3, gt=0.0, le=1.0)
    """AdamW's learning rate."""
    epochs: int = Field(default=4, ge=1, le=100)
    """Optimizer steps on the values of one training step."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """A value moves at most so far from its prediction within a step; left out: no limit."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount a turn."""
    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """GAE: 0 trusts the next value, 1 the rewards of the whole episode."""
    max_tokens: int = Field(default=4096, ge=16)
    """A longer joint observation loses its beginning."""


class PreferenceSpec(SpecModel):
    """Learning from pairs: the best of a group against the worst."""

    beta: float = Field(default=0.1, gt=0.0)
    """How far the policy may leave the reference: large stays near."""


class AlternateSpec(SpecModel):
    """Iterated best response: the policies learn one after another, the others stand still."""

    order: list[Name] = Field(min_length=2, max_length=MAX_NAMED)
    """Policies in the order in which they learn; a policy that is not named learns always."""
    every: int = Field(default=1, ge=1)
    """Training steps of a policy's turn."""


class AlgorithmSpec(SpecModel):
    """How groups are drawn and what is learnt from them."""

    kind: str = "at_grpo"
    """Registered name (`troupe.algorithms` entry point) or `module:attr`."""
    params: PluginParams = Field(default_factory=dict, exclude_if=_is_empty)
    """Parameters of the algorithm alone, checked by its own model `Params`."""
    group_size: int = Field(default=8, ge=2, le=1024)
    """K: candidates in a group."""
    scale: Literal["std", "none"] | None = None
    """Divide advantages by a standard deviation, the group's or the step's (docs/algorithms.md), or
    do not; the algorithm's own when left out."""
    aggregation: Literal["token", "sequence", "sequence_sum"] | None = None
    """Mean over tokens, over completions of their token means, or over completions of their token
    sums; the algorithm's own when left out."""
    minibatches: int = Field(default=1, ge=1, le=64)
    """Optimizer steps per training step; each sees its share of the groups once."""
    loss: LossSpec = LossSpec()
    """The loss."""
    filters: FilterSpec = FilterSpec()
    """What is not learnt from."""
    redraws: int = Field(default=0, ge=0, le=64)
    """Dynamic sampling: other tasks that a ticket may play while no group has any variance."""
    alternate: AlternateSpec | None = None
    """Which policies learn at which steps; all of them always when left out."""
    joint: JointSpec | None = None
    """Joint actions, for the algorithms that can draw them (workflow kind `simultaneous`)."""
    critic: CriticSpec | None = None
    """The value function, for the algorithms that need one."""
    preference: PreferenceSpec | None = None
    """Pairs, for the algorithms that learn from them."""


class RewardSpec(SpecModel):
    """reward = alpha * team + sum of weight * local term (arXiv 2510.11062, Eq. 3).

    With `kind` a function adds a term of its own (docs/writing-a-reward.md). A text in the place of
    these fields is its `kind`: `reward: my_rewards:fluency`.
    """

    alpha: float = Field(default=1.0, ge=0.0)
    """Weight of the team reward."""
    weights: dict[str, dict[str, float]] = Field(default_factory=dict, max_length=MAX_NAMED)
    """agent -> term -> weight; terms that are left out keep the task's default weight."""
    kind: str = Field(default="", exclude_if=_is_empty)
    """Reward function: registered name (`troupe.rewards` entry point) or `module:attr`."""
    name: str = Field(default="", max_length=40, pattern=r"^\w*$", exclude_if=_is_empty)
    """Name of its term in records and metrics; the last part of `kind` when left out."""
    params: PluginParams = Field(default_factory=dict, exclude_if=_is_empty)
    """Its parameters: checked by its model `Params`, or a function's keyword-only arguments."""
    weight: float = Field(default=1.0, exclude_if=lambda weight: weight == 1.0)
    """Weight of its term for every agent; `weights` may give one agent another."""
    mode: Literal["add", "replace"] = Field(default="add", exclude_if=lambda mode: mode == "add")
    """add: beside the team reward and the task's terms; replace: these are recorded and count
    nothing, but for terms that `weights` names."""

    @property
    def team_weight(self) -> float:
        """What the team reward counts."""
        return 0.0 if self.mode == "replace" else self.alpha

    @property
    def term(self) -> str:
        """Name of the function's term; "" without a function."""
        return self.name or self.kind.rpartition(":")[2].rpartition(".")[2]


def _function_alone(value: Any) -> Any:
    """``reward: my_rewards:fluency`` names a function and changes nothing else."""
    return {"kind": value} if isinstance(value, str) else value


RewardPart = Annotated[
    RewardSpec, BeforeValidator(_function_alone, json_schema_input_type=str | RewardSpec)
]


class BatchSpec(SpecModel):
    """How sequences are laid out for the trainer. Never changes what is learnt."""

    tokens_per_row: int = Field(default=512, ge=16, le=1_048_576)
    """A forward and backward pass holds at most `tokens_per_row * rows_per_microbatch` tokens; a
    longer group gets a pass of its own."""
    rows_per_microbatch: int = Field(default=8, ge=1)
    """See `tokens_per_row`."""
    checkpoint_activations: bool = False
    """Compute activations again in the backward pass: about a third slower, far less memory."""


class TrainerSpec(SpecModel):
    """Which processes learn. Never changes what is learnt."""

    per_policy: bool = False
    """One trainer process for each policy, so that all policies learn at once; false: one trainer
    learns all of them, one after another. Refused for what looks across policies."""


class EvalSpec(SpecModel):
    """Success on tasks that are never trained on."""

    num_tasks: int = Field(default=200, ge=0, le=1_000_000)
    """Held-out instances; 0 turns evaluation off."""
    split: Literal["validation", "test"] = "test"
    """Split that the instances come from."""
    every: int = Field(default=0, ge=0)
    """Evaluate every so many steps; 0: only before the first step and after the last."""
    sampling: SamplingSpec | None = None
    """Sampling for evaluation; the agents' own when left out."""


class CheckpointSpec(SpecModel):
    """When the trainer can be resumed from."""

    every: int = Field(default=1, ge=1)
    """Steps between checkpoints; groups are kept in Redis until one covers them."""
    keep_last: int = Field(default=2, ge=1)
    """Newest checkpoints kept."""
    keep_best: int = Field(default=0, ge=0)
    """Checkpoints kept besides, whose weights earned the highest mean reward in training."""


class LimitsSpec(SpecModel):
    """Deadlines and budgets; nothing waits for ever."""

    generate_timeout_s: float = Field(default=120.0, gt=0.0)
    """One Generate call, retries included."""
    env_timeout_s: float = Field(default=60.0, gt=0.0)
    """One Reset or Step call, retries included."""
    episode_timeout_s: float = Field(default=900.0, gt=0.0)
    """One episode; after it the ticket is tried again."""
    step_timeout_s: float = Field(default=3600.0, gt=0.0)
    """One step; after it the job fails and names what it waited for."""
    phase_deadline_s: float = Field(default=600.0, gt=0.0)
    """One phase of a step; after it the event `phase.overdue` names who is waited for."""
    startup_timeout_s: float = Field(default=300.0, gt=0.0)
    """From launch until every service of the job serves."""
    max_attempts: int = Field(default=5, ge=1)
    """Failed plays of one ticket before it is parked and its groups count as dropped."""
    max_dropped_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    """The job fails when more of a step's tickets than this are dropped."""
    episodes_in_flight: int = Field(default=64, ge=1, le=100_000)
    """Episodes that one worker plays at once."""


class TrackerSpec(SpecModel):
    """An experiment tracker that is told the job's numbers. It can never stop the job."""

    kind: str
    """`csv`, `tensorboard`, `wandb`, `mlflow`, another `troupe.trackers` entry point, or
    `module:attr`."""
    project: str = ""
    """Project or experiment; the job's name when left out."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the tracker. Keys and passwords come from the router's environment instead."""


class JobSpec(SpecModel):
    """One training job, complete: same spec and seed, same curves."""

    name: Name
    """Name of the job; its run folder carries it."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """All randomness of the job derives from it."""
    steps: int = Field(ge=0, le=1_000_000)
    """Training steps; 0 only evaluates."""
    tasks_per_step: int = Field(default=32, ge=1, le=100_000)
    """Task instances that one step plays."""
    max_staleness: int = Field(default=0, ge=0, le=16)
    """Steps by which the weights that sampled a group may lag behind those that it trains; above 0
    the next step is played while this one is learnt. 0: strictly on-policy."""
    task: TaskSpec
    """What the team does."""
    workflow: WorkflowSpec
    """Who acts when."""
    agents: dict[Name, AgentSpec] = Field(min_length=1, max_length=MAX_NAMED)
    """Seat -> policy; the policy level (shared, adapter each, model each) is only this map."""
    policies: dict[Name, PolicySpec] = Field(min_length=1, max_length=MAX_NAMED)
    """Weights that are trained; those that no agent samples from are left out."""
    algorithm: AlgorithmSpec = AlgorithmSpec()
    """How they are trained."""
    reward: RewardPart = RewardSpec()
    """What for."""
    sampling: SamplingSpec = SamplingSpec()
    """How agents sample unless they say otherwise."""
    batch: BatchSpec = BatchSpec()
    """Layout in the trainer."""
    trainer: TrainerSpec = TrainerSpec()
    """One trainer, or one for each policy."""
    eval: EvalSpec = EvalSpec()
    """Held-out evaluation."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """Resuming."""
    limits: LimitsSpec = LimitsSpec()
    """Deadlines."""
    trackers: tuple[TrackerSpec, ...] = Field(default=(), max_length=8)
    """Experiment trackers, besides the files in the run folder."""

    @model_validator(mode="after")
    def _leave_out_unused(self) -> "JobSpec":
        """Let the level change by the map alone: nothing waits for a policy that nobody has."""
        used = {agent.policy for agent in self.agents.values()}
        if used <= self.policies.keys():  # a wrong name is an issue, which suggests the others
            policies = {name: policy for name, policy in self.policies.items() if name in used}
            object.__setattr__(self, "policies", policies)
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

    def trainers(self) -> tuple[str, ...]:
        """The policy that each trainer process learns; "" is the one trainer of all policies."""
        return tuple(sorted(self.policies)) if self.trainer.per_policy else ("",)

    def learns(self, policy: str, step: int) -> bool:
        """Whether ``policy`` learns in training step ``step``: it trains, and it is its turn."""
        turns = self.algorithm.alternate
        if turns is None or policy not in turns.order:
            return self.trains(policy)
        return turns.order[step // turns.every % len(turns.order)] == policy

    def sampling_for(self, agent: str, *, evaluate: bool = False) -> SamplingSpec:
        """Sampling of ``agent``: the eval override, then its own, then the job's."""
        sampling = self.agents[agent].sampling or self.sampling
        if not evaluate or self.eval.sampling is None:
            return sampling
        return self.eval.sampling.model_copy(update={"max_new_tokens": sampling.max_new_tokens})
