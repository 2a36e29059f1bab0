"""The result of a training step: its metrics, its running sums and its failure.

Owns the summation. Never sees a model.
"""
# ruff: noqa: N815 (tensor names carry shape suffixes)

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from troupe.errors import JobFailedError
from troupe_trainer.model.ranks.group import Ranks
from troupe_trainer.samples import CreditedGroup

CORRECTED = 1e-3
"""A token counts as corrected when its importance weight is further from 1 than this."""

_NAMED_GROUPS = 8
"""An error names so many groups; the file has all."""

FLOPS = "_flops"
"""Floating point operations among a minibatch's sums."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Log probabilities of one micro-batch that do not change within a step."""

    old_N: Tensor | None = None
    reference_N: Tensor | None = None
    teacher_N: Tensor | None = None


class NonFiniteError(JobFailedError):
    """Loss or gradient is not a number; ``groups`` are those at fault.

    These are the groups that are not finite alone, or the whole minibatch if there are none.
    ``minibatch`` is its number in the step.
    """

    reason = "NON_FINITE"

    def __init__(
        self, message: str, groups: Sequence[CreditedGroup] = (), *, minibatch: int = 0
    ) -> None:
        super().__init__(message)
        self.groups = groups
        self.minibatch = minibatch


def blame(groups: Sequence[CreditedGroup], has_finite_weights: bool) -> str:
    """The sentence that names the groups at fault, or says that the weights are."""
    if not has_finite_weights:
        return "The weights themselves hold numbers that are not finite."
    if not groups:  # of demonstrations alone
        return "No group has a part in it."
    names = [group.record.group_id for group in groups]
    shown = ", ".join(names[:_NAMED_GROUPS])
    more = f" and {len(names) - _NAMED_GROUPS} more" if len(names) > _NAMED_GROUPS else ""
    return f"Groups at fault: {shown}{more}."


@dataclass(frozen=True, slots=True)
class LearnOutcome:
    """The result of one training step. ``metrics`` are means over tokens or minibatches.

    ``parity_ratio`` (largest |ratio - 1| of a token) and ``parity_kl`` (mean k3) are of all
    minibatches before any weight moved: there the rollout's and the trainer's probabilities are
    those of the same weights. ``peak_memory_bytes`` is the step's largest memory use.
    ``trained_groups`` had a gradient: of their advantages or, where the loss has such terms, of KL
    and entropy alone. ``ideal_s``: seconds that the step's operations would take at the devices'
    full speed; None where that is not known.
    """

    metrics: dict[str, float]
    trained_tokens: int
    peak_memory_bytes: int | None = None
    trained_groups: int = 0
    ideal_s: float | None = None


@dataclass(frozen=True, slots=True)
class Imitated:
    """Demonstrations of one optimizer step: the cross-entropy of their tokens, in nats and summed,
    and the weight of its mean in the loss."""

    loss: float = 0.0
    num_tokens: int = 0
    weight: float = 0.0
    flops: float = 0.0


@dataclass(slots=True)
class Minibatch:
    """Running sums of one minibatch."""

    sums: defaultdict[str, float]
    loss: float = 0.0
    grad_norm: float = 0.0
    ratio_max: float = 0.0
    drift_max: float = 0.0
    num_tokens: int = 0
    imitated: Imitated = Imitated()

    def over(self, ranks: Ranks) -> "Minibatch":
        """The sums of all ranks."""
        if ranks.size == 1:
            return self
        names = ranks.names_of_all(self.sums)
        sums = {name: self.sums.get(name, 0.0) for name in names}
        totals = ranks.added(
            {**sums, "_loss": self.loss, "_tokens": float(self.num_tokens)},
            {"_ratio_max": self.ratio_max, "_drift_max": self.drift_max},
        )
        return Minibatch(
            sums=defaultdict(float, {name: totals[name] for name in names}),
            loss=totals["_loss"],
            ratio_max=totals["_ratio_max"],
            drift_max=totals["_drift_max"],
            num_tokens=int(totals["_tokens"]),
        )

    def add(self, part: "Minibatch") -> None:
        """Add the sums of one micro-batch."""
        for name, value in part.sums.items():
            self.sums[name] += value
        self.loss += part.loss
        self.ratio_max = max(self.ratio_max, part.ratio_max)
        self.drift_max = max(self.drift_max, part.drift_max)
        self.num_tokens += part.num_tokens

    @property
    def is_update(self) -> bool:
        """Whether it has a gradient, so that the optimizer makes a step."""
        return bool(self.num_tokens or self.imitated.num_tokens)

    def is_finite(self) -> bool:
        """Loss and gradient are numbers."""
        return all(map(math.isfinite, (self.loss, self.imitated.loss, self.grad_norm)))

    def add_drift(self, trainer_N: Tensor, rollout_N: Tensor) -> None:
        """Count tokens that the rollout sampled with ``rollout_N`` and the trainer scores."""
        log_ratio_N = (trainer_N.cpu() - rollout_N).double()
        ratio_less_one_N = torch.expm1(log_ratio_N)
        self.sums["kl_rollout"] += float((ratio_less_one_N - log_ratio_N).sum())
        self.drift_max = max(self.drift_max, float(ratio_less_one_N.abs().max()))
        self.num_tokens += len(log_ratio_N)


def step_metrics(minibatches: Sequence[Minibatch]) -> dict[str, float]:
    """The means over all trained tokens, and of loss and gradient norm over the minibatches that
    made an optimizer step; one whose groups have no gradient makes none."""
    totals: dict[str, float] = defaultdict(float)
    loss = grad_norm = 0.0
    num_updates = sum(part.is_update for part in minibatches)
    for part in minibatches:
        for name, value in part.sums.items():
            totals[name] += value
        if part.is_update:
            loss += part.loss / num_updates
            grad_norm += part.grad_norm / num_updates
    trained = max(1, sum(part.num_tokens for part in minibatches))
    metrics = {name: value / trained for name, value in totals.items() if name != FLOPS}
    metrics |= {"loss": loss, "grad_norm": grad_norm}
    metrics["ratio_max"] = max((part.ratio_max for part in minibatches), default=0.0)
    low, high = metrics.get("clip_fraction_low"), metrics.get("clip_fraction_high")
    if low is not None and high is not None:
        metrics["clip_fraction"] = low + high
    return metrics | _imitation_metrics([part.imitated for part in minibatches])


def _imitation_metrics(parts: Sequence[Imitated]) -> dict[str, float]:
    """The mean cross-entropy of the demonstrations' tokens; empty where none were shown."""
    num_tokens = sum(part.num_tokens for part in parts)
    if not num_tokens:
        return {}
    return {
        "demonstration_loss": sum(part.loss for part in parts) / num_tokens,
        "demonstration_tokens": num_tokens,
        "demonstration_weight": sum(p.weight * p.num_tokens for p in parts) / num_tokens,
    }


def parity(minibatches: Sequence[Minibatch]) -> dict[str, float]:
    """The difference between rollout and trainer; empty when nothing was trained.

    ``minibatches`` were measured with the weights that the rollout sampled from.
    """
    measured = [part for part in minibatches if part.num_tokens and "kl_rollout" in part.sums]
    if not measured:
        return {}
    num_tokens = sum(part.num_tokens for part in measured)
    kl = sum(part.sums["kl_rollout"] for part in measured) / num_tokens
    return {"parity_ratio": max(part.drift_max for part in measured), "parity_kl": kl}


def correction(old_N: Tensor | None, rollout_N: Tensor) -> dict[str, float]:
    """Sums over tokens of the weight pi_old / pi_rollout, and of how many are not 1."""
    if old_N is None:
        return {}
    weight_N = torch.exp(old_N - rollout_N)
    is_active_N = (weight_N - 1.0).abs() > CORRECTED
    return {"importance_mean": float(weight_N.sum()), "importance_active": float(is_active_N.sum())}
