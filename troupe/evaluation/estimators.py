"""Estimates with intervals: proportions, means and pass@k over tasks with several samples each.

Works on plain floats. Samples of one task are correlated, so intervals count tasks, not samples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

LEVEL = 0.95
"""Confidence of every interval."""

Clusters = Sequence[Sequence[float]]
"""One sequence of sample values for each task; tasks without a sample are left out."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval; ``method`` names the interval's method.

    ``low`` and ``high`` are None where no spread over tasks was seen: with a single task, and for
    an ``average`` of tasks that are all alike.

    Example: ``Estimate(0.5, 0.2366, 0.7634, "wilson", 10, 10)``.
    """

    mean: float
    low: float | None
    high: float | None
    method: str
    num_tasks: int
    num_samples: int


def wilson(mean: float, num_trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Score interval of a proportion ``mean`` of ``num_trials`` independent trials.

    Source: Wilson, JASA 22 (1927); never leaves [0, 1] and does not collapse at 0 or 1.
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = z * z / num_trials
    centre = (mean + share / 2) / (1 + share)
    spread = z / (1 + share) * math.sqrt(mean * (1 - mean) / num_trials + share / num_trials / 4)
    low = 0.0 if mean <= 0.0 else max(0.0, centre - spread)
    high = 1.0 if mean >= 1.0 else min(1.0, centre + spread)
    return low, high


def proportion(clusters: Clusters) -> Estimate | None:
    """The share of ones, or the mean of values in [0, 1]; None without a sample.

    With one sample a task, Wilson's interval. With more, Wilson's interval at the effective number
    of samples p(1 - p) / Var, where Var is the cluster-robust variance over tasks: at least the
    number of tasks, at most the number of samples.
    Source: Korn and Graubard, Survey Methodology 24 (1998).
    """
    nonempty = [list(c) for c in clusters if c]
    if not nonempty:
        return None
    num_tasks, num_samples = len(nonempty), sum(map(len, nonempty))
    mean = sum(map(sum, nonempty)) / num_samples
    if num_samples == num_tasks and all(c[0] in (0.0, 1.0) for c in nonempty):
        low, high = wilson(mean, num_tasks)
        return Estimate(mean, low, high, "wilson", num_tasks, num_samples)
    variance = cluster_variance(nonempty)
    spread = mean * (1 - mean)
    effective = spread / variance if variance > 0 and spread > 0 else float(num_tasks)
    low, high = wilson(mean, min(max(effective, num_tasks), num_samples))
    return Estimate(mean, low, high, "wilson, clustered by task", num_tasks, num_samples)


def average(clusters: Clusters) -> Estimate | None:
    """The mean of any values with Student's interval from the cluster-robust variance over tasks.

    Source for tasks - 1 degrees of freedom: Cameron and Miller, J. Human Resources 50 (2015).
    """
    nonempty = [list(c) for c in clusters if c]
    if not nonempty:
        return None
    num_samples = sum(map(len, nonempty))
    mean = sum(map(sum, nonempty)) / num_samples
    method = "Student's t, clustered by task"
    if len({sum(c) / len(c) for c in nonempty}) < 2:
        return Estimate(mean, None, None, method, len(nonempty), num_samples)
    spread = students_t(len(nonempty) - 1) * math.sqrt(cluster_variance(nonempty))
    return Estimate(mean, mean - spread, mean + spread, method, len(nonempty), num_samples)


def students_t(degrees: int) -> float:
    """The two-sided LEVEL point of Student's t: exact for 1 and 2 degrees, 0.12 % too small for 3.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    if degrees == 1:
        return math.tan(LEVEL * math.pi / 2)
    if degrees == 2:
        return LEVEL * math.sqrt(2 / (1 - LEVEL**2))
    return expanded_students_t(degrees)


def expanded_students_t(degrees: float) -> float:
    """The same for degrees of any size: 1 % too small for 2, 11 % for 1.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    x = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92_160,
    )
    return sum(term / degrees**power for power, term in enumerate(terms))


def cluster_variance(clusters: Clusters) -> float:
    """Variance of the mean over all samples, where tasks are independent and samples are not.

    G / (G - 1) * sum over tasks of (sum_g - mean * n_g)^2 / N^2; infinite for a single task.
    Source: Liang and Zeger, Biometrika 73 (1986), with the small-sample factor.
    """
    num_tasks, num_samples = len(clusters), sum(map(len, clusters))
    if num_tasks < 2:
        return math.inf
    mean = sum(map(sum, clusters)) / num_samples
    squares = sum((sum(c) - mean * len(c)) ** 2 for c in clusters)
    return num_tasks / (num_tasks - 1) * squares / num_samples**2


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Probability that ``k`` samples of one task contain a correct one, unbiased.

    1 - C(n - c, k) / C(n, k), as a product. Source: Chen et al., arXiv 2107.03374, Eq. 1.
    Needs ``1 <= k <= num_samples`` and ``0 <= num_correct <= num_samples``.
    """
    if not (1 <= k <= num_samples and 0 <= num_correct <= num_samples):
        raise ValueError(f"pass@{k} of {num_correct} correct in {num_samples} samples")
    missed = num_samples - num_correct
    if missed < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(missed + 1, num_samples + 1))


def paired_difference(first: Clusters, second: Clusters) -> Estimate | None:
    """Mean of ``second - first`` in success over the tasks of both, given in the same order.

    The interval adds one imaginary task in favour of each, so it does not collapse when no task
    separates the two.
    Source: Bonett and Price, Statistical Methods in Medical Research 21 (2012), Eq. 3, whose
    binary pairs are here each task's difference in [-1, 1].
    """
    pairs = zip(first, second, strict=True)
    differences = [sum(b) / len(b) - sum(a) / len(a) for a, b in pairs if a and b]
    if not differences:
        return None
    adjusted = [*differences, 1.0, -1.0]
    centre = sum(adjusted) / len(adjusted)
    variance = sum(d * d for d in adjusted) / len(adjusted) - centre**2
    spread = NormalDist().inv_cdf(0.5 + LEVEL / 2) * math.sqrt(variance / len(adjusted))
    return Estimate(
        sum(differences) / len(differences),
        max(-1.0, centre - spread),
        min(1.0, centre + spread),
        "adjusted Wald, paired by task",
        len(differences),
        len(differences),
    )
