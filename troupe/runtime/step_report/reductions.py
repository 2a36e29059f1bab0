"""Reduces the numbers of several policies to one number of the step. Pure.

A trainer of all policies and the router, which merges a trainer of each, use the same reductions.
None is a number that was not measured: it never counts as 0.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Count = Literal["tokens", "groups", "candidates", "advantages"]
_WORK = ("learn", "checkpoint", "publish")


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of one policy, and the counts that weight them."""

    values: Mapping[str, Any]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of many numbers to one. ``words`` describe it for people."""

    words: str
    of: Callable[[str, Sequence[Measured]], Any]


def _measured_values(name: str, parts: Sequence[Measured]) -> list[Any]:
    return [value for part in parts if (value := part.values.get(name)) is not None]


def _weighted(
    count: Count, parts: Sequence[Measured], value: Callable[[Measured], float | None]
) -> float | None:
    pairs = [
        (weight, number)
        for part in parts
        if (weight := part.counts.get(count, 0)) and (number := value(part)) is not None
    ]
    total = sum(weight for weight, _ in pairs)
    return math.fsum(weight / total * number for weight, number in pairs) if total else None


def _first(name: str, parts: Sequence[Measured]) -> Any:
    return next(iter(_measured_values(name, parts)), None)


def _sum(name: str, parts: Sequence[Measured]) -> Any:
    values = _measured_values(name, parts)
    return sum(values) if values else None


def _every(name: str, parts: Sequence[Measured]) -> bool | None:
    values = _measured_values(name, parts)
    return all(values) if values else None


def _union(name: str, parts: Sequence[Measured]) -> dict[str, Any]:
    merged = {key: value for part in _measured_values(name, parts) for key, value in part.items()}
    return dict(sorted(merged.items()))


def _sum_by_key(name: str, parts: Sequence[Measured]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for part in _measured_values(name, parts):
        counts.update(part)
    return dict(sorted(counts.items()))


def _mean_by_tokens(name: str, parts: Sequence[Measured]) -> float | None:
    return _weighted("tokens", parts, lambda part: part.values.get(name))


def _critic_mean(name: str, parts: Sequence[Measured]) -> float | None:
    values = _measured_values(name, parts)
    plain = math.fsum(values) / len(values) if values else None
    weighted = _mean_by_tokens(name, parts)
    return plain if weighted is None else weighted


def mean_by(count: Count) -> Reduction:
    """The mean weighted by each policy's ``count``, which is the mean over all of them."""
    return Reduction(
        f"mean by {count}",
        lambda name, parts: _weighted(count, parts, lambda part: part.values.get(name)),
    )


def mean_by_value(weight: str) -> Reduction:
    """The mean weighted by another number of each policy, such as its tokens of another kind."""

    def mean(name: str, parts: Sequence[Measured]) -> float | None:
        pairs = [
            (float(part.values[weight]), float(part.values[name]))
            for part in parts
            if part.values.get(weight) and part.values.get(name) is not None
        ]
        total = math.fsum(of for of, _ in pairs)
        return math.fsum(of / total * number for of, number in pairs) if total else None

    return Reduction(f"mean by {weight}", mean)


def spread_by(count: Count, mean: str) -> Reduction:
    """The standard deviation over all ``count``, from that of each policy and its ``mean``."""

    def spread(name: str, parts: Sequence[Measured]) -> float | None:
        centre = _weighted(count, parts, lambda part: part.values.get(mean))
        if centre is None:
            return None

        def square(part: Measured) -> float | None:
            std, its_mean = part.values.get(name), part.values.get(mean)
            return None if std is None or its_mean is None else std**2 + (its_mean - centre) ** 2

        variance = _weighted(count, parts, square)
        return None if variance is None else math.sqrt(variance)

    return Reduction(f"standard deviation over all {count}", spread)


def rate_of(amount: str, phase: str, also: str) -> Reduction:
    """The sum of ``amount`` over the seconds of ``phase`` and ``also`` of the slowest trainer."""

    def seconds_of(part: Measured) -> float:
        phases: Mapping[str, float] = part.values.get("phases") or {}
        return float(phases.get(phase, 0.0)) + float(part.values.get(also) or 0.0)

    def rate(_: str, parts: Sequence[Measured]) -> float | None:
        seconds = max(map(seconds_of, parts), default=0.0)
        total = _sum(amount, parts)
        return total / seconds if total and seconds > 0 else None

    return Reduction(f"sum of {amount} by the slowest trainer's {phase} time", rate)


def slowest_phases(parts: Sequence[Measured]) -> dict[str, float]:
    """The phases of the trainer with the most seconds of work."""
    phases: list[Mapping[str, float]] = _measured_values("phases", parts)
    return dict(
        max(phases, key=lambda seconds: sum(float(seconds.get(p, 0.0)) for p in _WORK), default={})
    )


ONCE = Reduction("measured once, of the whole step", _first)
SUM = Reduction("sum", _sum)
MAX = Reduction("largest", lambda name, parts: max(_measured_values(name, parts), default=None))
ALL = Reduction("true where true for all", _every)
SUM_BY_KEY = Reduction("sum of each key", _sum_by_key)
UNION = Reduction("all keys of all", _union)
BY_TOKENS = Reduction("mean by trained tokens", _mean_by_tokens)
CRITIC_MEAN = Reduction(
    "mean by trained tokens; the plain mean where only critics learn", _critic_mean
)
BY_GROUPS = mean_by("groups")
BY_CANDIDATES = mean_by("candidates")
BY_DEMONSTRATED = mean_by_value("demonstration_tokens")
