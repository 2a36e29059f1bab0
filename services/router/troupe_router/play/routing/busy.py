"""How long something was busy: the union of intervals, so that overlapping work counts once."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Interval = tuple[float, float]


def union_s(intervals: Iterable[Interval]) -> float:
    """Length of the union, seconds. Example: ``union_s([(0, 2), (1, 3), (5, 6)]) == 4``."""
    total, end = 0.0, float("-inf")
    for begin, finish in sorted(intervals):
        if finish > end:
            total += finish - max(begin, end)
            end = finish
    return total


@dataclass(slots=True)
class BusyMeter:
    """Intervals of one round: when an engine computed, and when an env judged."""

    generate: list[Interval] = field(default_factory=list[Interval])
    env: list[Interval] = field(default_factory=list[Interval])

    def generate_s(self) -> float:
        """Time in which at least one engine computed, seconds."""
        return union_s(self.generate)

    def env_s(self) -> float:
        """Time in which an env judged and no engine computed, seconds."""
        return union_s([*self.generate, *self.env]) - self.generate_s()
