"""Group-relative advantages: the arithmetic that the GRPO family shares.

Works on plain floats. Never sees tensors, prompts or agents.
"""

import math
from collections.abc import Sequence
from typing import Literal

EPSILON = 1e-6
"""Added to the standard deviation, as in the published implementations of GRPO."""

ZERO_STD = 1e-8
"""A group whose standard deviation is below this has nothing to compare."""


Baseline = Literal["mean", "leave_one_out", "max", "none"]
"""Subtracted from a reward: the group's mean, the mean of the others, the maximum, or nothing."""


def group_relative(
    rewards: Sequence[float], scale: Literal["std", "none"], baseline: Baseline = "mean"
) -> list[float]:
    """Each reward minus its group's baseline, divided by (std + 1e-6) if ``scale`` is "std".

    The standard deviation is the sample one (divisor K - 1) of the rewards, which is what the GRPO
    and Stronger-MAS code uses; the quotient is not centred again, so baselines stay distinct. A
    group of equal rewards gets exactly 0, except with baseline "none", which compares nothing: such
    rewards are not divided, because there is no deviation to divide by.

    Source: DeepSeekMath (arXiv 2402.03300), Section 4.1.2; without scale: "Understanding
    R1-Zero-Like Training" (Dr.GRPO, arXiv 2503.20783), Section 3.2; leave-one-out: RLOO (arXiv
    2402.14740), Section 2.

    Example: ``group_relative([0, 0, 0, 1], "none") == [-0.25, -0.25, -0.25, 0.75]``.
    """
    std = sample_std(rewards)
    if std < ZERO_STD and baseline != "none":
        return [0.0] * len(rewards)
    against = _baselines(rewards, baseline)
    centred = [reward - base for reward, base in zip(rewards, against, strict=True)]
    unit = std_unit(rewards) if scale == "std" else 1.0
    return [value / unit for value in centred]


def std_unit(values: Sequence[float]) -> float:
    """The divisor of ``scale: std``: std + 1e-6, or 1 where all values are equal.

    Example: ``std_unit([1.0, 1.0]) == 1.0``; dividing by 1e-6 alone would give a million.
    """
    std = sample_std(values)
    return 1.0 if std < ZERO_STD else std + EPSILON


def _baselines(rewards: Sequence[float], baseline: Baseline) -> list[float]:
    count, total = len(rewards), math.fsum(rewards)
    if baseline == "mean":
        return [total / count] * count
    if baseline == "leave_one_out":
        return [(total - reward) / (count - 1) for reward in rewards]
    if baseline == "max":
        return [max(rewards)] * count
    return [0.0] * count


def whitened(
    advantages: Sequence[Sequence[float]], trajectories: Sequence[Sequence[int]] | None = None
) -> list[list[float]]:
    """(A - mean) / (std + 1e-6) of each candidate of a step; 0 when all are equal.

    Mean and deviation are over all candidates. With ``trajectories``, the number of each
    candidate's trajectory in its group, they are over trajectories: one that took many turns,
    each of which carries its return, counts once.
    """
    every = _once(advantages, trajectories)
    std = sample_std(every)
    if std < ZERO_STD:
        return [[0.0] * len(values) for values in advantages]
    mean = math.fsum(every) / len(every)
    return [[(value - mean) / (std + EPSILON) for value in values] for values in advantages]


def over_the_steps_std(
    advantages: Sequence[Sequence[float]], trajectories: Sequence[Sequence[int]]
) -> list[list[float]]:
    """A / (std + 1e-6) of each candidate of a step whose mean is 0 but for rounding; std as of
    `whitened`. What is exactly 0, as in a flat group, stays so."""
    unit = std_unit(_once(advantages, trajectories))
    return [[value / unit for value in values] for values in advantages]


def _once(
    advantages: Sequence[Sequence[float]], trajectories: Sequence[Sequence[int]] | None
) -> list[float]:
    """All advantages of a step; with ``trajectories``, one of each trajectory of a group."""
    if trajectories is None:
        return [value for values in advantages for value in values]
    return [
        value
        for numbers, values in zip(trajectories, advantages, strict=True)
        for value in dict(zip(numbers, values, strict=True)).values()
    ]


def sample_std(values: Sequence[float]) -> float:
    """Standard deviation with divisor n - 1; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
