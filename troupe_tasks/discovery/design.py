"""How much a set of points can tell, whatever the law: the determinant of a quadratic design.

The experimenter is paid for the growth of log det (sum of f f^T) of the features f of its points
(constant, each quantity scaled to -1 to 1, its square): D-optimality (Kiefer and Wolfowitz 1959).
Points that repeat one another add next to nothing, and the sum is bounded.
"""

import math
from collections.abc import Mapping, Sequence

from troupe_tasks.discovery.formulas import Point

PRIOR = 0.05
"""Keeps the determinant positive; a design starts from it."""
FULL = 0.35
"""Mean information of a direction of a design that counts as full."""


def information(points: Sequence[Point], ranges: Mapping[str, tuple[float, float]]) -> float:
    """From 0, nothing measured, to 1."""
    size = 1 + 2 * len(ranges)
    matrix = [[PRIOR * (i == j) for j in range(size)] for i in range(size)]
    for point in points:
        features = _features(point, ranges)
        for i in range(size):
            for j in range(size):
                matrix[i][j] += features[i] * features[j]
    gained = log_determinant(matrix) - size * math.log(PRIOR)
    full = size * math.log((PRIOR + 12 * FULL) / PRIOR)
    return min(1.0, gained / full)


def log_determinant(matrix: list[list[float]]) -> float:
    """Of a symmetric positive matrix, by Cholesky's decomposition."""
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    total = 0.0
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = math.sqrt(max(rest, 1e-12)) if i == j else rest / lower[j][j]
        total += 2 * math.log(lower[i][i])
    return total


def _features(point: Point, ranges: Mapping[str, tuple[float, float]]) -> list[float]:
    scaled = [
        2 * (point[n] - low) / max(high - low, 1e-12) - 1 for n, (low, high) in ranges.items()
    ]
    return [1.0, *scaled, *(s * s - 0.5 for s in scaled)]
