"""Measures when engines and environments were busy, for a ticket and for a whole round.

The process that plays a ticket measures the intervals and writes them into its episode; the one
that records the round, possibly another process, reads them there. Owns the intervals; never a
metric.
"""

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from troupe.api.records.v1 import records_pb2 as pb

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into ordered, disjoint ones.

    Example: ``union([(5, 6), (0, 2), (1, 3)]) == [(0, 3), (5, 6)]``.
    """
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def union_s(intervals: Iterable[Interval]) -> float:
    """Length of the union in seconds. Example: ``union_s([(0, 2), (1, 3), (5, 6)]) == 4``."""
    return sum((end - begin for begin, end in union(intervals)), start=0.0)


@dataclass(slots=True)
class BusyMeter:
    """Intervals on the monotonic clock: when an engine computed, and when an env judged.

    ``draws`` are the engine's by replica, one for each call.
    """

    generate: list[Interval] = field(default_factory=list[Interval])
    env: list[Interval] = field(default_factory=list[Interval])
    draws: list[tuple[str, Interval]] = field(default_factory=list[tuple[str, Interval]])

    def to_record(self) -> pb.BusyTimes:
        """The intervals on the wall clock, which all processes share."""
        since = time.time() - time.monotonic()
        return pb.BusyTimes(
            generate=[since + at for pair in union(self.generate) for at in pair],
            env=[since + at for pair in union(self.env) for at in pair],
            draws=[
                pb.DrawTime(replica=replica, began_at=since + begin, ended_at=since + end)
                for replica, (begin, end) in self.draws
            ],
        )


_meter: ContextVar[BusyMeter | None] = ContextVar("busy_meter", default=None)


@contextmanager
def measured() -> Generator[BusyMeter]:
    """Collect the intervals noted inside the block, including by the tasks that it starts."""
    meter = BusyMeter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def note_generate(begin: float, end: float, *, replica: str = "") -> None:
    """Note that ``replica`` computed from ``begin`` to ``end``, by the monotonic clock."""
    if (meter := _meter.get()) is not None:
        meter.generate.append((begin, end))
        if replica:
            meter.draws.append((replica, (begin, end)))


def note_env(begin: float, end: float) -> None:
    """Note that an environment judged from ``begin`` to ``end``, by the monotonic clock."""
    if (meter := _meter.get()) is not None:
        meter.env.append((begin, end))


@dataclass(frozen=True, slots=True)
class BusySeconds:
    """Seconds of a round. ``env`` is the time in which an env judged and no engine computed."""

    generate: float
    env: float


def busy_seconds(episodes: Iterable[pb.Episode]) -> BusySeconds:
    """Totals over all episodes of a round; overlapping work counts once, whoever played it."""
    records = [episode.busy for episode in episodes if episode.HasField("busy")]
    generate = [pair for record in records for pair in _pairs(record.generate)]
    env = [pair for record in records for pair in _pairs(record.env)]
    generate_s = union_s(generate)
    return BusySeconds(generate_s, union_s([*generate, *env]) - generate_s)


def last_work(episodes: Iterable[pb.Episode]) -> float | None:
    """When the last engine or environment ended its work for a round, Unix seconds, if known."""
    ends = (of[-1] for e in episodes for of in (e.busy.generate, e.busy.env) if of)
    return max(ends, default=None)


def _pairs(instants: Sequence[float]) -> list[Interval]:
    return list(zip(instants[::2], instants[1::2], strict=True))
