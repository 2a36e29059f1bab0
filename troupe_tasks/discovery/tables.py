"""Published tables of readings (LLM-SRBench): measuring takes the nearest row of the table.

The law is not known as a formula here, so success is one witness, prediction, with a strict bound,
inside and outside the range of the table.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ConfigDict, Field

from troupe.data.taskset import PreparedRow
from troupe_tasks.discovery.formulas import Node
from troupe_tasks.discovery.judging import Readings

OUTPUT = "O"
MAX_ROWS = 400
MAX_KEPT = 64


class TableRow(PreparedRow):
    """One published table. In ``readings``, ``held_out`` and ``far`` a row is output, then inputs.

    ``expression`` is the published law, for people; no prompt shows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[str, ...] = Field(min_length=1, max_length=8)
    descriptions: tuple[str, ...] = ()
    readings: tuple[tuple[float, ...], ...] = Field(min_length=4)
    held_out: tuple[tuple[float, ...], ...] = Field(min_length=2)
    far: tuple[tuple[float, ...], ...] = ()
    expression: str = ""
    source: str = ""

    @property
    def compared(self) -> str:
        """What is measured; one law may have several tables."""
        return str(self.readings)


@dataclass(frozen=True)
class Table:
    """A published table as a world: see ``laws.Law``, whose place it takes."""

    names: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]
    rows: Readings
    hidden: Readings
    text: str
    about: str = ""
    formula: Node | None = None

    def settled(self, point: Mapping[str, float]) -> Mapping[str, float]:
        """The row nearest to ``point``, in parts of the ranges."""
        return min(self.rows, key=lambda row: (self._distance(row[0], point), row[1]))[0]

    def reading(self, point: Mapping[str, float], noise: float) -> float:
        """What the table says at a row; it brings its own noise."""
        del noise
        return next(measured for place, measured in self.rows if place == point)

    def _distance(self, a: Mapping[str, float], b: Mapping[str, float]) -> float:
        spans = {n: max(high - low, 1e-12) for n, (low, high) in self.ranges.items()}
        return math.fsum(((a[n] - b[n]) / spans[n]) ** 2 for n in self.names)


@lru_cache(maxsize=MAX_KEPT)
def table_of(row_json: str) -> Table:
    """The row, as JSON, as a world; its quantities are called v1, v2 and so on."""
    row = TableRow.model_validate_json(row_json)
    names = tuple(f"v{number}" for number in range(1, len(row.names) + 1))
    rows, near, far = (
        [(dict(zip(names, line[1:], strict=True)), line[0]) for line in table]
        for table in (row.readings, row.held_out, row.far or row.held_out)
    )
    ranges = {n: (min(p[n] for p, _ in rows), max(p[n] for p, _ in rows)) for n in names}
    size = min(len(near), len(far))
    hidden = [pair for both in zip(far[:size], near[:size], strict=True) for pair in both]
    listed = [f"{n} is {d}" for n, d in zip(("q", *names), row.descriptions, strict=False)]
    return Table(names, ranges, rows, hidden, row.expression, "; ".join(listed))
