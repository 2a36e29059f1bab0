"""The part of a job spec that says how a job learns: algorithm, loss, KL, critic, filters."""

from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from troupe.spec.base import MAX_NAMED, Name, PluginParams, SpecModel, is_empty
from troupe.spec.policy import FullSpec, LoraSpec


def _is_one(number: float) -> bool:
    return number == 1


class AdaptiveKlSpec(SpecModel):
    """After each step `coef` is multiplied by 1 + gain * e, where e = (KL - target) / target is cut
    to -0.2 and 0.2 (arXiv 1909.08593, Section 2.2)."""

    target: float = Field(gt=0.0)
    """Mean KL of a trained token that is held, in nats: the metric `kl_ref`. With `where: reward`
    it is the KL that the reward was taxed by."""
    gain: float = Field(default=0.1, gt=0.0, le=1.0)
    """How fast the coefficient follows; 0.1 changes it by at most 2 % in a step."""


class KlSpec(SpecModel):
    """KL divergence to the reference: the policy before the first step (adapter off, or a copy)."""

    coef: float = Field(default=0.0, ge=0.0)
    """Weight; 0 computes no reference. With `adaptive`, that of the first step."""
    adaptive: AdaptiveKlSpec | None = Field(default=None, exclude_if=lambda part: part is None)
    """A target that the weight follows; the weight stays when left out."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Schulman's estimators; k1 has no useful gradient and is for the reward only."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss of each token, or subtracted from the candidate's reward."""


class RatioMaskSpec(SpecModel):
    """Takes the surrogate's gradient from tokens whose engine and trainer disagree too much about
    them. They stay in the loss's mean, and in its KL and entropy terms."""

    level: Literal["token", "sequence", "geometric"] = "token"
    """token: by the token's own ratio (IcePop); sequence: by the product over its completion;
    geometric: by that product's geometric mean, which does not grow with the length."""
    low: float = Field(default=0.5, gt=0.0, le=1.0)
    """A smaller ratio pi_trainer / pi_rollout is left out. No value: 0.5, of geometric 0.999."""
    high: float = Field(default=5.0, ge=1.0)
    """A larger one is left out. No value: 5, of geometric 1.001."""

    @model_validator(mode="before")
    @classmethod
    def _of_level(cls, document: Any) -> Any:
        """The band that goes with the level, so that a stored spec says it.

        Source: IcePop (arXiv 2510.18855); geometric: verl's preset ``decoupled_geo_rs``.
        """
        given = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
        if given.get("level") == "geometric":
            return {"low": 0.999, "high": 1.001} | given
        return document


class ImportanceSpec(SpecModel):
    """Truncated importance sampling: corrects for differences between engine and trainer."""

    level: Literal["token", "sequence"] = "token"
    """One weight for each token, or their product for each completion."""
    cap: float = Field(default=2.0, gt=0.0)
    """Largest weight; larger ones are cut to it."""
    mask: RatioMaskSpec | None = Field(default=None, exclude_if=lambda mask: mask is None)
    """Tokens whose weight is 0 instead; none when left out."""


class AdaptiveEntropySpec(SpecModel):
    """After each step `entropy_coef` grows by `delta` if the entropy was below the target, else it
    falls by `delta`; the bonus counts only after a step at or below the target (arXiv 2505.22312).
    """

    target: float = Field(gt=0.0)
    """Mean entropy of a trained token that is held, in nats: the metric `entropy`."""
    delta: float = Field(default=0.005, gt=0.0)
    """Change of the coefficient in a step."""
    max_coef: float = Field(default=0.1, gt=0.0)
    """Largest coefficient; the smallest is 0."""


class LossSpec(SpecModel):
    """Policy-gradient loss."""

    kind: Literal["ppo_clip", "gspo", "cispo"] = "ppo_clip"
    """ppo_clip: token ratio; gspo: one ratio a completion; cispo: clips the weight and keeps every
    token's gradient."""
    clip_low: float | None = Field(default=None, gt=0.0, le=1.0)
    """Ratio is clipped below 1 - clip_low; 1 does not clip it. Left out: 0.2, of gspo 3e-4, of
    cispo 1."""
    clip_high: float | None = Field(default=None, gt=0.0)
    """Ratio is clipped above 1 + clip_high. Left out: 0.2, of gspo 4e-4."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """ppo_clip: largest ratio that a negative advantage is multiplied by; left out: no limit."""
    positive_advantage_weight: float = Field(default=1.0, ge=0.0, exclude_if=_is_one)
    """Factor on advantages above 0; 0.1 is Weighted-REINFORCE's (arXiv 2506.01347)."""
    negative_advantage_weight: float = Field(default=1.0, ge=0.0, exclude_if=_is_one)
    """Factor on advantages below 0; 0 learns from better candidates alone."""
    entropy_coef: float = Field(default=0.0, ge=0.0)
    """Weight of an entropy bonus, per token. With `adaptive_entropy`, that of the first step."""
    adaptive_entropy: AdaptiveEntropySpec | None = Field(
        default=None, exclude_if=lambda part: part is None
    )
    """A target entropy that `entropy_coef` follows; it stays when left out."""
    kl: KlSpec = KlSpec()
    """KL penalty towards the reference."""
    importance: ImportanceSpec | None = None
    """Correction for the rollout engine's probabilities; needs one more forward pass."""

    @property
    def clip_range(self) -> tuple[float, float]:
        """How far below and above 1 the ratio may go.

        Source of the defaults: PPO (arXiv 1707.06347), Section 6.1; GSPO (arXiv 2507.18071),
        Section 5.1; CISPO has no lower bound (arXiv 2506.13585, Section 3.1), and its upper one is
        that of verl's example.
        """
        usual = {"ppo_clip": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (1.0, 0.2)}
        low, high = usual[self.kind]
        return (
            low if self.clip_low is None else self.clip_low,
            high if self.clip_high is None else self.clip_high,
        )


class FilterSpec(SpecModel):
    """What is left out of the loss and of its denominator; everything left out is counted."""

    truncated: bool = False
    """Completions that ran into max_new_tokens (overlong filtering)."""
    zero_variance: bool = False
    """Groups whose advantages are all 0; otherwise they dilute the step by their tokens."""


class OverlongSpec(SpecModel):
    """Soft penalty of long completions, subtracted from the reward in the trainer.

    0 up to max_new_tokens - buffer, then linear, up to `weight` at max_new_tokens. The sampler does
    not see it.
    """

    buffer: int = Field(ge=1)
    """Tokens before the limit over which the penalty grows."""
    weight: float = Field(default=1.0, gt=0.0)
    """Penalty of a completion that reaches the limit."""


class JointSpec(SpecModel):
    """Joint actions of agents that act at once, and the tree that they span over the turns."""

    mode: Literal["aligned", "cross"] = "aligned"
    """aligned: the k-th candidates of all agents, K joint actions in each node; cross: every
    combination, K ** agents."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount of the next turn's return."""


class FollowSpec(SpecModel):
    """Candidates that are worth what comes after them: each is played on to the end."""

    agents: list[Name] = Field(default_factory=list, max_length=MAX_NAMED)
    """Agents whose candidates are followed; all agents when left out. The others learn from what
    they do in the continuations, compared by task."""
    executions: int = Field(default=2, ge=1, le=64)
    """M: continuations of each candidate."""
    goes_on: Literal["best", "random", False] = "best"
    """best: the episode goes on from the candidate of the highest value; random: from any of them,
    so its states are those of the policy; false: it ends with the first act that is followed."""


class CriticSpec(SpecModel):
    """A value function, and the advantages that are estimated with it."""

    kind: Literal["model", "head"] = "model"
    """model: a separate network; head: a linear head on the policy's features, which it reads
    and does not train."""
    model: str | None = None
    """Local folder or hub id of the critic's network; the policy's model when left out. Under
    `ippo` its tokenizer has the vocabulary of each policy's; under `mappo` it reads text."""
    train: Annotated[LoraSpec | FullSpec, Field(discriminator="kind")] = LoraSpec()
    """Which weights of the critic's network are trained, besides its head."""
    learning_rate: float = Field(default=1e-3, gt=0.0, le=1.0)
    """AdamW's learning rate."""
    epochs: int = Field(default=4, ge=1, le=100)
    """Optimizer steps on the values of one training step."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """Largest change of a value from its prediction within a step, in units of reward; null: no
    limit."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount per turn."""
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


class DemonstrationsSpec(SpecModel):
    """Supervised learning in the same job: the loss of each optimizer step has the added term
    `weight` * mean cross-entropy of the demonstrations' answer tokens."""

    path: str = Field(min_length=1)
    """File of rows `{"agent": ..., "messages": [{"role": ..., "content": ...}], "answer": ...}`,
    JSON Lines or Parquet, where the trainer runs; `prompt`, a text, may stand for `messages`."""
    weight: float = Field(default=1.0, gt=0.0)
    """What the mean cross-entropy of an answer's token counts beside the loss of the groups."""
    per_update: int = Field(default=8, ge=1, le=65_536)
    """Demonstrations of each optimizer step, of each policy. Each is shown once before any is shown
    again; the seed sets the order."""
    schedule: Literal["constant", "linear"] = "constant"
    """linear: the weight falls to 0 over the policy's optimizer steps."""
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", exclude_if=is_empty)
    """Digest of the file; another file is refused. `troupe train` writes it, so that a job is never
    resumed with other rows."""


class AlgorithmSpec(SpecModel):
    """How groups are drawn and what is learnt from them."""

    kind: str = "at_grpo"
    """Registered name (`troupe.algorithms` entry point), `module:attr` or `file.py:attr`."""
    params: PluginParams = Field(default_factory=dict, exclude_if=is_empty)
    """Parameters of the algorithm alone, checked by its own model `Params`."""
    group_size: int = Field(default=8, ge=1, le=1024)
    """K: candidates in a group; at least 2 where they are compared with each other."""
    scale: Literal["std", "none"] | None = None
    """Divide advantages by a standard deviation, the group's or the step's (docs/algorithms.md), or
    do not; the algorithm's default when left out."""
    aggregation: Literal["token", "sequence", "sequence_sum"] | None = None
    """Mean over tokens, over completions of their token means, or over completions of their token
    sums; the algorithm's default when left out."""
    minibatches: int = Field(default=1, ge=1, le=64)
    """Parts of a training step's groups, with an optimizer step each; one without groups has none,
    and schedules do not count those that can get none from whole episodes."""
    epochs: int = Field(default=1, ge=1, le=16, exclude_if=_is_one)
    """How often a training step goes through its groups, dealt out anew each time. Ratios stay
    relative to the probabilities from before its first update."""
    loss: LossSpec = LossSpec()
    """The loss."""
    filters: FilterSpec = FilterSpec()
    """Completions and groups that are left out of the loss."""
    overlong: OverlongSpec | None = Field(default=None, exclude_if=lambda part: part is None)
    """Penalty of completions that come near the token limit; none when left out."""
    demonstrations: DemonstrationsSpec | None = Field(
        default=None, exclude_if=lambda part: part is None
    )
    """Answers that are imitated beside what the algorithm learns; none when left out."""
    redraws: int = Field(default=0, ge=0, le=64)
    """Dynamic sampling: other tasks that a ticket may play while no group has any variance."""
    alternate: AlternateSpec | None = None
    """Which policies learn at which steps; all of them always when left out."""
    joint: JointSpec | None = None
    """Joint actions, for algorithms that draw them (workflow kind `simultaneous`)."""
    follow: FollowSpec | None = Field(default=None, exclude_if=lambda part: part is None)
    """Continuations, for the algorithm that follows its candidates (workflow kind `self_play`)."""
    critic: CriticSpec | None = None
    """The value function, for algorithms that need one."""
    preference: PreferenceSpec | None = None
    """Pairs, for algorithms that learn from them."""
