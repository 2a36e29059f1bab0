"""Weights of the loss's KL and entropy terms that follow a target from step to step.

Works on plain floats. Never sees tensors or a model.

Source: KL: "Fine-Tuning Language Models from Human Preferences" (arXiv 1909.08593), Section 2.2;
entropy: Skywork-OR1 (arXiv 2505.22312), "Adaptive Entropy Control".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from troupe.spec.algorithm import AdaptiveEntropySpec, AdaptiveKlSpec, LossSpec

LARGEST_ERROR = 0.2
"""The relative error is cut to plus and minus this."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weights of one step. ``entropy`` counts only where the entropy ``is_low``."""

    kl: float
    entropy: float
    is_low: bool = True

    @classmethod
    def first(cls, loss: LossSpec) -> Self:
        """Those of the first step."""
        return cls(loss.kl.coef, loss.entropy_coef)

    @property
    def bonus(self) -> float:
        """Weight of the entropy in the loss."""
        return self.entropy if self.is_low else 0.0

    def after(self, metrics: Mapping[str, float], loss: LossSpec) -> Coefficients:
        """Those of the step after one with ``metrics``; one that was not measured stays."""
        kl, entropy, is_low = self.kl, self.entropy, self.is_low
        if loss.kl.adaptive is not None and "kl_ref" in metrics:
            kl = next_kl_coef(kl, metrics["kl_ref"], loss.kl.adaptive)
        if loss.adaptive_entropy is not None and "entropy" in metrics:
            entropy = next_entropy_coef(entropy, metrics["entropy"], loss.adaptive_entropy)
            is_low = metrics["entropy"] <= loss.adaptive_entropy.target
        return Coefficients(kl, entropy, is_low)

    def metrics(self, loss: LossSpec) -> dict[str, float]:
        """Those that follow a target, under their names in a step's report."""
        of_kl = {"kl_coef": self.kl} if loss.kl.adaptive else {}
        return of_kl | ({"entropy_coef": self.bonus} if loss.adaptive_entropy else {})


def next_kl_coef(coef: float, kl: float, spec: AdaptiveKlSpec) -> float:
    """coef * (1 + gain * e), where e is the relative error of ``kl``, cut to -0.2 and 0.2.

    Example: coef 0.5, KL 0.011, target 0.01, gain 0.1: e = 0.1, and 0.505 follows.
    """
    error = (kl - spec.target) / spec.target
    return coef * (1.0 + spec.gain * min(LARGEST_ERROR, max(-LARGEST_ERROR, error)))


def next_entropy_coef(coef: float, entropy: float, spec: AdaptiveEntropySpec) -> float:
    """``delta`` more below the target and less above it, within 0 and ``max_coef``.

    Example: coef 0.01, entropy 0.2, target 0.3, delta 0.005: 0.015 follows.
    """
    sign = (entropy < spec.target) - (entropy > spec.target)
    return min(spec.max_coef, max(0.0, coef + sign * spec.delta))
