"""Judges a formula: by its predictions where nobody measured, and by its form.

Two witnesses. The error of its predictions is the mean squared error over the variance (NMSE), the
worse of inside and outside the measured range. Its form is right when some other
coefficients, the exponents kept, make it equal to the law at every point: noise moves
coefficients, and no noise makes a sum of a product.
"""

import math
from collections.abc import Sequence

from troupe_tasks.discovery.formulas import (
    Node,
    coefficients,
    value,
    with_coefficients,
)
from troupe_tasks.discovery.laws import Readings

SUCCESS_NMSE = 1e-2
TABLE_NMSE = 1e-4
"""For tables, whose law is not known as a formula."""
SAME_FORM_NMSE = 1e-10
MAX_SIZE_RATIO = 1.5
MAX_COEFFICIENTS = 10
MAX_ITERATIONS = 40
FIT_POINTS = 24
LEAST_SHARE = 0.1
"""Readings below this share of the typical one weigh as if they had it."""


def nmse(node: Node, readings: Readings) -> float:
    """Mean squared error over the variance of the readings; infinite without a value."""
    values = [value(node, point) for point, _ in readings]
    wanted = [reading for _, reading in readings]
    if not wanted or any(found is None for found in values):
        return math.inf
    mean = sum(wanted) / len(wanted)
    variance = sum((y - mean) ** 2 for y in wanted) or 1e-12
    try:
        error = sum((y - v) ** 2 for y, v in zip(wanted, values, strict=True) if v is not None)
    except OverflowError:
        return math.inf
    return error / variance


def score(error: float) -> float:
    """1 for no error, 0 for that of the mean or worse: ``1 - log10(1 + 1e4 * error) / 4``."""
    if not math.isfinite(error):
        return 0.0
    return max(0.0, 1.0 - math.log10(1.0 + 1e4 * error) / 4.0)


def error_of(node: Node, held_out: Readings) -> float:
    """The worse NMSE of the held-out points inside and outside the measured range."""
    return max(nmse(node, held_out[1::2]), nmse(node, held_out[0::2]))


def is_same_form(node: Node, law: Node, held_out: Readings) -> bool:
    """Whether coefficients exist with which ``node`` is the law, at most 1.5 times its size."""
    if node.size > MAX_SIZE_RATIO * law.size or len(coefficients(node)) > MAX_COEFFICIENTS:
        return False
    return nmse(fitted(node, held_out[:FIT_POINTS]), held_out) < SAME_FORM_NMSE


def fitted(node: Node, readings: Readings) -> Node:
    """``node`` with the coefficients of least squared relative error, exponents to a quarter.

    Source: Levenberg 1944, Marquardt 1963, with a numeric Jacobian.
    """
    numbers = coefficients(node)
    if not numbers:
        return with_coefficients(node, [])
    typical = math.sqrt(sum(y * y for _, y in readings) / max(1, len(readings)))
    scale = [1.0 / max(abs(y), LEAST_SHARE * typical, 1e-9) for _, y in readings]
    damping, best = 1e-3, _residuals(node, numbers, readings, scale)
    if best is None:
        return with_coefficients(node, numbers)
    for _ in range(MAX_ITERATIONS):
        step = _step(node, numbers, readings, scale, best, damping)
        if step is None:
            break
        tried = [n + s for n, s in zip(numbers, step, strict=True)]
        after = _residuals(node, tried, readings, scale)
        if after is not None and _squared(after) < _squared(best):
            is_done = _squared(best) - _squared(after) < 1e-30
            numbers, best, damping = tried, after, max(damping / 10, 1e-12)
            if is_done:
                break
        elif damping > 1e8:
            break
        else:
            damping *= 10
    return with_coefficients(node, numbers)


def _residuals(
    node: Node, numbers: Sequence[float], readings: Readings, scale: Sequence[float]
) -> list[float] | None:
    filled = with_coefficients(node, numbers)
    found: list[float] = []
    for (point, wanted), weight in zip(readings, scale, strict=True):
        predicted = value(filled, point)
        if predicted is None or abs(predicted) > 1e100:
            return None
        found.append((predicted - wanted) * weight)
    return found


def _squared(residuals: Sequence[float]) -> float:
    return sum(r * r for r in residuals)


def _step(
    node: Node,
    numbers: Sequence[float],
    readings: Readings,
    scale: Sequence[float],
    residuals: Sequence[float],
    damping: float,
) -> list[float] | None:
    """The damped Gauss-Newton step, or None where there is no derivative."""
    columns: list[list[float]] = []
    for at, number in enumerate(numbers):
        width = 1e-6 * max(abs(number), 1e-3)
        moved = [*numbers[:at], number + width, *numbers[at + 1 :]]
        after = _residuals(node, moved, readings, scale)
        if after is None:
            return None
        columns.append([(a - r) / width for a, r in zip(after, residuals, strict=True)])
    count = len(numbers)
    matrix = [
        [sum(p * q for p, q in zip(columns[i], columns[j], strict=True)) for j in range(count)]
        for i in range(count)
    ]
    for i in range(count):
        matrix[i][i] *= 1.0 + damping
        matrix[i][i] += 1e-15
    right = [-sum(p * r for p, r in zip(column, residuals, strict=True)) for column in columns]
    return solved(matrix, right)


def solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """The solution of a small linear system by elimination with pivots; None when singular."""
    count = len(right)
    rows = [[*row, y] for row, y in zip(matrix, right, strict=True)]
    for at in range(count):
        pivot = max(range(at, count), key=lambda r: abs(rows[r][at]))
        if abs(rows[pivot][at]) < 1e-300:
            return None
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for below in range(at + 1, count):
            factor = rows[below][at] / rows[at][at]
            rows[below] = [b - factor * t for b, t in zip(rows[below], rows[at], strict=True)]
    found = [0.0] * count
    for at in reversed(range(count)):
        known = sum(rows[at][k] * found[k] for k in range(at + 1, count))
        found[at] = (rows[at][count] - known) / rows[at][at]
    return found if all(math.isfinite(number) for number in found) else None
