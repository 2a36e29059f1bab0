"""Parity of rollout and trainer: at staleness 0 both compute the same probabilities.

Owns the limits and the alarm's message. A difference means that the engine serves other weights,
renders other tokens or rounds differently: every update is then silently off-policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import LearnOutcome


@dataclass(frozen=True, slots=True)
class ParityLimits:
    """Largest |ratio - 1| of a token, and largest mean k3 estimate of KL(rollout || trainer)."""

    ratio: float
    kl: float


LIMITS = {
    "float32": ParityLimits(0.005, 1e-4),
    "tf32": ParityLimits(0.3, 1e-3),
    "bfloat16": ParityLimits(2.0, 0.01),
}
"""By the numbers that products are computed with. bfloat16 rounds logits from 16 to 64 to steps of
0.125 and 0.25, so the largest of many tokens tells little: 0.62 of 7,200 of SmolLM2, whose mean KL
was 0.002. TF32, in which a GPU multiplies float32, has three bits more: 0.015 of the few tokens of
a canary, on an H100."""


def limits_of(dtype: str) -> ParityLimits:
    """Those of a policy of ``dtype`` in this process, whose models may have asked for TF32."""
    has_tf32 = torch.get_float32_matmul_precision() != "highest"
    return LIMITS["tf32" if dtype == "float32" and has_tf32 else dtype]


def parity_alarms(
    spec: JobSpec, step: int, outcomes: Mapping[str, LearnOutcome]
) -> list[dict[str, Any]]:
    """One event for each policy whose groups of ``step`` exceeded its limits.

    Example: ``{"step": 4, "policy": "coder", "ratio": 0.4, "kl": 0.02, ...}``.
    """
    alarms: list[dict[str, Any]] = []
    for policy, outcome in outcomes.items():
        ratio, kl = outcome.metrics.get("parity_ratio"), outcome.metrics.get("parity_kl")
        limits = limits_of(spec.policies[policy].dtype)
        if ratio is None or kl is None or not outcome.trained_tokens:
            continue
        if ratio <= limits.ratio and kl <= limits.kl:
            continue
        measured = {"step": step, "policy": policy, "ratio": ratio, "kl": kl}
        alarms.append({**measured, "ratio_limit": limits.ratio, "kl_limit": limits.kl})
    return alarms
