"""Curves of a job: the lines of metrics.jsonl, parsed once, as series of numbers over steps.

Owns the reading of metrics.jsonl for REST. Never writes it.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from troupe.clients.rest.models.metrics import MetricsDocument, SeriesDocument
from troupe.runtime.step_report.catalogue import catalogue_document
from troupe_router.run.record_lines import open_plain, parse_line, part_name, read_lines

Line = Mapping[str, Any]
Point = tuple[str, int, Mapping[str, float | None]]
"""Kind, step and the numbers of a line by dotted name."""
_KEPT_FILES = 64
_NOT_SERIES = frozenset({"kind", "step"})


@dataclass(slots=True)
class _File:
    size: int = 0
    head: bytes = b""
    lines: list[Line] = field(default_factory=list[Line])
    points: list[Point] = field(default_factory=list[Point])


class MetricLines:
    """Lines of metrics.jsonl files; a file that only grew is read from where it was left."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, _File] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run_dir: Path) -> Sequence[Line]:
        """The whole lines of ``run_dir/metrics.jsonl``, in file order; none without a file."""
        return list(self._file(run_dir).lines)

    def points(self, run_dir: Path) -> Sequence[Point]:
        """The same lines as numbers."""
        return list(self._file(run_dir).points)

    def _file(self, run_dir: Path) -> _File:
        path = run_dir / "metrics.jsonl"
        with self._lock:
            try:
                size = path.stat().st_size
            except OSError:
                self._files.pop(path, None)
                return _File()
            known = self._files.get(path)
            if known is None or not _continues(path, known, size):
                known = self._files[path] = _File()
            if size > known.size:
                _extend(path, known)
            self._files.move_to_end(path)
            while len(self._files) > _KEPT_FILES:
                self._files.popitem(last=False)
            return known


def _continues(path: Path, known: _File, size: int) -> bool:
    """Whether the file still begins with what was read: a resumed job cuts lines off."""
    if size < known.size:
        return False
    with path.open("rb") as file:
        file.seek(max(0, known.size - len(known.head)))
        return file.read(len(known.head)) == known.head


def _extend(path: Path, known: _File) -> None:
    file = open_plain(path)
    if file is None:
        return
    with file:
        file.seek(known.size)
        for place, line in read_lines(file):
            if not line.endswith(b"\n"):
                return
            known.size = place + len(line)
            known.head = (known.head + line)[-128:]
            # A power cut may leave zeros, and others write to the folder: such lines are none.
            with suppress(RecursionError, OverflowError):
                document = parse_line(line)
                if document and part_name(document):
                    point = str(document["kind"]), int(document["step"]), flatten(document)
                    known.lines.append(document)
                    known.points.append(point)


def metrics_document(
    job_id: str, points: Sequence[Point], *, names: Sequence[str], from_step: int, max_points: int
) -> MetricsDocument:
    """The answer of ``/metrics``: curves of training and of evaluation.

    A name that no line has is listed as unknown and is no error: a new job has none yet. Without
    ``names`` the answer also describes every number and which are drawn together.
    """
    known: dict[str, None] = {}
    curves: dict[str, SeriesDocument] = {}
    for kind in ("train", "eval"):
        points_of_kind = sorted(((s, values) for k, s, values in points if k == kind), key=_step_of)
        for _, values in points_of_kind:
            known.update(dict.fromkeys(values))
        shown = [point for point in points_of_kind if point[0] >= from_step]
        curves[kind] = _series(shown, names, max_points)
    unknown = [
        name for name in names if not any(_is_wanted(known_name, (name,)) for known_name in known)
    ]
    catalogue = {} if names else catalogue_document()
    return MetricsDocument.model_validate(
        {
            "job_id": job_id,
            "train": curves["train"],
            "eval": curves["eval"],
            "names": sorted(known),
            "unknown": sorted(set(unknown)),
            **catalogue,
        }
    )


def flatten(line: Mapping[str, Any], prefix: str = "") -> dict[str, float | None]:
    """The numbers of a line by dotted name; True and False are 1 and 0."""
    numbers: dict[str, float | None] = {}
    for key, value in line.items():
        if not prefix and key in _NOT_SERIES:
            continue
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            numbers.update(flatten(value, f"{name}."))
        elif value is None or isinstance(value, int | float):
            number = None if value is None else float(value)
            numbers[name] = number if number is None or isfinite(number) else None
    return numbers


def _series(
    points: Sequence[tuple[int, Mapping[str, float | None]]], names: Sequence[str], max_points: int
) -> SeriesDocument:
    every = dict.fromkeys(name for _, values in points for name in values)
    shown = [name for name in every if _is_wanted(name, names)]
    width = -(-len(points) // max_points) or 1
    buckets = [points[i : i + width] for i in range(0, len(points), width)]
    return SeriesDocument(
        steps=[bucket[-1][0] for bucket in buckets],
        series={name: [_mean(bucket, name) for bucket in buckets] for name in shown},
    )


def _is_wanted(name: str, names: Sequence[str]) -> bool:
    return not names or any(name == n or name.startswith(f"{n}.") for n in names)


def _mean(bucket: Sequence[tuple[int, Mapping[str, float | None]]], name: str) -> float | None:
    values = [v for _, line in bucket if (v := line.get(name)) is not None]
    if len(values) <= 1:
        return values[0] if values else None
    return sum(values) / len(values)


def _step_of(point: tuple[int, Any]) -> int:
    return point[0]
