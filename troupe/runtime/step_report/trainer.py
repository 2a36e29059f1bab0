"""A trainer's metrics of a step: one field declares one metric, here and nowhere else.

A field's declaration gives its meaning, its unit, how the numbers of several policies become one,
its Prometheus series and its chart. `catalogue.py` refuses a name that another part has.
"""

# ruff: noqa: RUF009 (a declaration is a call that makes the field of a dataclass)
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from troupe.runtime.step_report.metric import (
    ByKey,
    Count,
    Curve,
    Number,
    Part,
    Series,
    Source,
    number,
    numbers,
)
from troupe.runtime.step_report.reductions import (
    ALL,
    BY_CANDIDATES,
    BY_DEMONSTRATED,
    BY_GROUPS,
    BY_TOKENS,
    CRITIC_MEAN,
    MAX,
    SUM,
    SUM_BY_KEY,
    UNION,
    Measured,
    rate_of,
    slowest_phases,
    spread_by,
)

_GROUPS = "troupe_job_groups_total"
TRUNCATED_SHARE = 0.5
"""`truncated_fraction` from which on the token limit is what a step is judged by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerPart(Part):
    """A trainer's numbers of one step: of all policies, or of its ``policy`` alone.

    Rewards and lengths are over the candidates of all groups that the trainer took, trained or not.
    ``extra`` are the numbers of a plug-in's loss, which have no declaration.
    """

    measured_by: ClassVar[Source] = "trainer"

    step: int
    policy_version: Count = number("Version of the weights that the step made.", "count")
    staleness: Count = number(
        "Versions by which the oldest group's weights lag behind.",
        "steps",
        MAX,
        curve=Curve("staleness"),
    )
    staleness_mean: Number = number(
        "Mean versions by which a group's weights lag behind.",
        "steps",
        BY_GROUPS,
        curve=Curve("staleness"),
    )
    overlap_s: Number = number("Time for which the round was played ahead.", "seconds", MAX)

    learned_ahead_s: Number = number(
        "Time of learning while the round was still being played.",
        "seconds",
        MAX,
        curve=Curve("overlap", "learnt meanwhile"),
    )
    waited_s: Number = number(
        "Time for which the trainer waited for the round with nothing to learn from.",
        "seconds",
        MAX,
        curve=Curve("overlap", "waited"),
    )

    stage_s: Number = number(
        "Time in which the step's weights were sent to every replica and checked there.",
        "seconds",
        MAX,
        curve=Curve("push", "sent and checked"),
    )
    activate_s: Number = number(
        "Time in which replicas went over to the step's weights, from the first to the last.",
        "seconds",
        MAX,
        curve=Curve("push", "went over"),
    )

    loss: Number = number("Mean loss of the minibatches that moved weights.", "number", BY_TOKENS)
    kl_rollout: Number = number(
        "KL divergence (k3) between rollout and trainer on the same tokens.",
        "nats",
        BY_TOKENS,
        source="loss",
        curve=Curve("kl", "rollout"),
    )
    parity_kl: Number = number(
        "kl_rollout of all minibatches, before any weight moved.",
        "nats",
        BY_TOKENS,
        curve=Curve("kl", "parity"),
    )
    kl_ref: Number = number(
        "KL divergence to the reference: in the loss, or that the rewards were taxed by.",
        "nats",
        BY_TOKENS,
        source="loss",
        curve=Curve("kl", "reference"),
        is_optional=True,
    )
    kl_teacher: Number = number(
        "KL divergence (k1) of the policy to its teacher, before the step.",
        "nats",
        BY_TOKENS,
        source="loss",
        curve=Curve("kl", "teacher"),
        is_optional=True,
    )
    kl_coef: Number = number(
        "Weight of the KL term in this step, where it follows a target.",
        "number",
        BY_TOKENS,
        curve=Curve("coefficients", "KL"),
        is_optional=True,
    )
    entropy_coef: Number = number(
        "Weight of the entropy bonus in this step, where it follows a target.",
        "number",
        BY_TOKENS,
        curve=Curve("coefficients", "entropy"),
        is_optional=True,
    )
    kl_rollout_k1: Number = number(
        "KL divergence (k1) between rollout and trainer.",
        "nats",
        BY_TOKENS,
        source="loss",
        is_optional=True,
    )
    ratio_mean: Number = number(
        "Mean ratio of a token, trainer to rollout.", "number", BY_TOKENS, source="loss"
    )
    ratio_max: Number = number("Largest ratio of a token, trainer to rollout.", "number", MAX)
    parity_ratio: Number = number(
        "Largest |ratio - 1| of a token before any weight moved.", "number", MAX
    )
    clip_fraction: Number = number("Share of the tokens that were clipped.", "share", BY_TOKENS)
    clip_fraction_low: Number = number(
        "Share of the tokens that were clipped from below.",
        "share",
        BY_TOKENS,
        source="loss",
        curve=Curve("clip", "low"),
        is_optional=True,
    )
    clip_fraction_high: Number = number(
        "Share of the tokens that were clipped from above.",
        "share",
        BY_TOKENS,
        source="loss",
        curve=Curve("clip", "high"),
        is_optional=True,
    )
    dual_clip_fraction: Number = number(
        "Share of the tokens that the dual clip cut.",
        "share",
        BY_TOKENS,
        source="loss",
        is_optional=True,
    )
    gspo_ratio: Number = number(
        "Mean ratio of a sequence (GSPO).", "number", BY_TOKENS, source="loss", is_optional=True
    )
    importance_mean: Number = number(
        "Mean weight pi_old / pi_rollout.", "number", BY_TOKENS, is_optional=True
    )
    importance_active: Number = number(
        "Share of the tokens whose weight is not 1.", "share", BY_TOKENS, is_optional=True
    )
    importance_capped: Number = number(
        "Share of the tokens whose weight was capped.",
        "share",
        BY_TOKENS,
        source="loss",
        is_optional=True,
    )
    importance_masked: Number = number(
        "Share of the tokens that the ratio's mask left out.",
        "share",
        BY_TOKENS,
        source="loss",
        is_optional=True,
    )
    entropy: Number = number(
        "Entropy of the sampled tokens.",
        "nats",
        BY_TOKENS,
        curve=Curve("entropy", "entropy", by_policy=True),
    )
    grad_norm: Number = number(
        "Mean gradient norm of the minibatches that moved weights, before clipping.",
        "number",
        BY_TOKENS,
        curve=Curve("grad", "norm", by_policy=True),
    )
    learning_rate: Number = number(
        "Learning rate of the last optimizer step.", "number", BY_TOKENS, is_optional=True
    )
    explained_variance: Number = number(
        "Share of the returns' variance that the critic explains.",
        "number",
        CRITIC_MEAN,
        source="critic",
        curve=Curve("value", "explained variance"),
        is_optional=True,
    )
    value_loss: Number = number(
        "Loss of the critic.",
        "number",
        CRITIC_MEAN,
        source="critic",
        curve=Curve("value", "loss"),
        is_optional=True,
    )
    value_mean: Number = number(
        "Mean return that the critic predicts.",
        "number",
        CRITIC_MEAN,
        source="critic",
        is_optional=True,
    )
    value_clip_fraction: Number = number(
        "Share of the critic's predictions that were clipped.",
        "share",
        CRITIC_MEAN,
        source="critic",
        is_optional=True,
    )
    demonstration_loss: Number = number(
        "Mean cross-entropy of a demonstrated token, before the step.",
        "nats",
        BY_DEMONSTRATED,
        source="demonstrations",
        curve=Curve("demonstrations", "cross-entropy", by_policy=True),
        is_optional=True,
    )
    demonstration_tokens: Count = number(
        "Tokens that were imitated.", "tokens", SUM, source="demonstrations", is_optional=True
    )
    demonstration_weight: Number = number(
        "Weight of the demonstrations' mean cross-entropy in the loss.",
        "number",
        BY_DEMONSTRATED,
        source="demonstrations",
        is_optional=True,
    )
    by_policy: Mapping[str, ByKey] = numbers(
        "The learning numbers of each policy, in a job of several.",
        "number",
        UNION,
        series=Series(keys=("policy",)),
        tracked_as="policy",
        is_optional=True,
    )

    trained_reward_mean: Number = number(
        "Mean reward of the candidates that the trainer took.", "number", BY_CANDIDATES
    )
    reward_std: Number = number(
        "Standard deviation of the rewards that the trainer took.",
        "number",
        spread_by("candidates", "trained_reward_mean"),
        curve=Curve("spread", "reward"),
    )
    trained_reward_by_agent: ByKey = numbers(
        "Mean reward of each agent's candidates that the trainer took.",
        "number",
        UNION,
        tracked_as="trained_reward",
    )
    advantage_std: Number = number(
        "Standard deviation of the advantages.",
        "number",
        spread_by("advantages", "advantage_mean"),
        curve=Curve("spread", "advantage"),
    )
    completion_tokens: Number = number(
        "Mean tokens of a completion.", "tokens", BY_CANDIDATES, curve=Curve("lengths", "tokens")
    )
    truncated_fraction: Number = number(
        "Share of the completions that ran into the token limit.",
        "share",
        BY_CANDIDATES,
        curve=Curve("turns", "truncated share"),
    )
    groups_trained: Count = number(
        "Groups that had a gradient.",
        "count",
        SUM,
        series=Series(_GROUPS, {"outcome": "trained"}),
        curve=Curve("groups", "trained"),
    )
    groups_zero_variance: Count = number(
        "Groups whose advantages are all 0.",
        "count",
        SUM,
        series=Series(_GROUPS, {"outcome": "zero_variance"}),
        curve=Curve("groups", "no variance"),
    )
    is_flat: bool | None = number("No group of the step has an advantage.", "flag", ALL)
    groups_dropped: Mapping[str, int] = numbers(
        "Groups that were not learnt from, by reason.",
        "count",
        SUM_BY_KEY,
        series=Series(_GROUPS, keys=("outcome",), prefix="dropped_"),
        curve=Curve("dropped"),
        tracked_as="groups_dropped",
    )
    candidates_filtered: Count = number("Candidates that a filter left out.", "count", SUM)
    trained_tokens: Count = number(
        "Trained tokens, in every epoch anew.",
        "tokens",
        SUM,
        series=Series("troupe_job_tokens_total", {"kind": "trained"}),
    )
    peak_memory_bytes: Count = number("Most memory that the step held.", "bytes", MAX)
    trained_tokens_per_s: Number = number(
        "Trained tokens over the time of learning.",
        "tokens/s",
        rate_of("trained_tokens", "learn", "learned_ahead_s"),
        curve=Curve("tokens", "trained"),
    )
    mfu: Number = number(
        "Model FLOPs utilization: share of the GPUs' full bfloat16 speed while learning.",
        "share",
        BY_TOKENS,
        is_optional=True,
    )

    policy: str = ""
    """The only policy of this trainer; "" where one trainer learns all."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of groups, candidates and advantages: this trainer's weights in a mean."""
    advantage_mean: Number = None
    phases: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds of each phase of the trainer."""
    extra: ByKey = field(default_factory=dict[str, Number])

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        """Read a ``step.learned`` event or a checkpoint's report, of this version or the last."""
        names = {field.name for field in fields(cls)} - {"extra"}
        values = {_FORMER.get(name, name): value for name, value in data.items()}
        declared = {k: v for k, v in values.items() if k in names and v is not None}
        return cls(**declared, extra={k: v for k, v in values.items() if k not in names})

    def to_line(self) -> dict[str, Any]:
        """The metrics as metrics.jsonl has them."""
        return {**self.extra, **Part.to_line(self)}

    def to_wire(self) -> dict[str, Any]:
        """Everything, for the router to read; also under the former names."""
        wire = {name: value for name, value in Part.to_wire(self).items() if name != "extra"}
        return wire | {former: wire[name] for former, name in _FORMER.items()}


_FORMER = {
    "tokens_per_s": "trained_tokens_per_s",
    "reward_mean": "trained_reward_mean",
    "reward_by_agent": "trained_reward_by_agent",
}
"""Names of three numbers in events and checkpoints of 0.1.0, which play uses as well.

Events and checkpoints carry both names, so that a router or trainer of that version reads them.
"""


def over_policies(parts: Sequence[TrainerPart]) -> TrainerPart:
    """Merge the parts of each policy's trainer into the part that one trainer of all would make."""
    measured = [_measured(part) for part in parts]
    whole = {name: metric.over.of(name, measured) for name, metric in TrainerPart.metrics().items()}
    return TrainerPart(
        step=parts[0].step,
        phases=slowest_phases(measured),
        extra={name: BY_TOKENS.of(name, measured) for part in parts for name in part.extra},
        **{name: value for name, value in whole.items() if value is not None},
    )


def _measured(part: TrainerPart) -> Measured:
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return Measured({**values, **part.extra}, {**part.counts, "tokens": part.trained_tokens or 0})
