"""Group-relative advantages: the arithmetic that the GRPO family shares.

Owns plain floats. Never sees tensors, prompts or who the agents are.
"""

import math
from collections.abc import Sequence
from typing import Literal

EPSILON = 1e-6
"""Added to the standard deviation, as in the published implementations of GRPO."""

ZERO_STD = 1e-8
"""A group whose standard deviation is below this has nothing to compare."""


def group_relative(rewards: Sequence[float], scale: Literal["std", "none"]) -> list[float]:
    """Each reward against its group: (r - mean) / (std + 1e-6), or r - mean without ``scale``.

    The standard deviation is the sample one (divisor K - 1), which is what the GRPO and
    Stronger-MAS code uses. A group of equal rewards gets exactly 0.

    Source: DeepSeekMath (arXiv 2402.03300), Section 4.1.2; without scale: "Understanding
    R1-Zero-Like Training" (Dr.GRPO, arXiv 2503.20783), Section 3.2.

    Example: ``group_relative([0, 0, 0, 1], "none") == [-0.25, -0.25, -0.25, 0.75]``.
    """
    count = len(rewards)
    mean = math.fsum(rewards) / count
    centred = [reward - mean for reward in rewards]
    std = sample_std(rewards)
    if std < ZERO_STD:
        return [0.0] * count
    if scale == "none":
        return centred
    return [value / (std + EPSILON) for value in centred]


def sample_std(values: Sequence[float]) -> float:
    """Standard deviation with divisor n - 1; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
