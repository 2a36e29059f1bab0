"""The declaration of a metric, and how a part of the report is written and read.

Owns no metric: `play.py` and `trainer.py` declare them as fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, Self

from troupe.runtime.step_report.reductions import ONCE, Reduction

Unit = Literal[
    "number", "share", "seconds", "bytes", "tokens", "tokens/s", "nats", "count", "steps", "flag"
]
Source = Literal["play", "trainer", "loss", "critic", "demonstrations", "router"]
Number = float | None
Count = int | None
ByKey = Mapping[str, Number]
LEARNING_VALUE = "troupe_job_learning_value"


@dataclass(frozen=True, slots=True)
class Series:
    """The Prometheus series of a metric; every one has the label ``job_id``.

    ``labels`` are fixed; ``keys`` are the labels that take the keys of a mapping, with ``prefix``
    before each. A ``troupe_job_learning_value`` has the metric's name in its label ``name``.
    """

    metric: str = LEARNING_VALUE
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: tuple[str, ...] = ()
    prefix: str = ""


_KEY = "metric"
_VALUE = Series()


@dataclass(frozen=True, slots=True)
class Curve:
    """Where the page draws a metric: the id of a panel of `panels.py`, and the words beside it.

    ``by_policy``: a job of several policies has a curve of each instead.
    """

    panel: str
    label: str = ""
    is_dotted: bool = False
    by_policy: bool = False


@dataclass(frozen=True, slots=True)
class Metric:
    """One declared number, or a mapping of numbers.

    ``over`` makes one number of several policies'. ``source`` is who measures it where the part's
    own is not. Trackers know it as ``tracked_as``, or by its name. One that ``is_optional`` is left
    out of a line while there is no number. Without a ``curve`` the page shows its newest value.
    """

    description: str
    unit: Unit
    over: Reduction = ONCE
    source: Source | None = None
    series: Series = _VALUE
    curve: Curve | None = None
    tracked_as: str = ""
    is_optional: bool = False


def number(
    description: str,
    unit: Unit,
    over: Reduction = ONCE,
    *,
    source: Source | None = None,
    series: Series = _VALUE,
    curve: Curve | None = None,
    is_optional: bool = False,
) -> Any:
    """A field of a part that is a number, or None where nothing was measured."""
    metric = Metric(description, unit, over, source, series, curve, is_optional=is_optional)
    return same_as(metric)


def numbers(
    description: str,
    unit: Unit,
    over: Reduction = ONCE,
    *,
    series: Series = _VALUE,
    curve: Curve | None = None,
    tracked_as: str,
    is_optional: bool = False,
) -> Any:
    """A field of a part that is a mapping of numbers."""
    metric = Metric(
        description, unit, over, None, series, curve, tracked_as=tracked_as, is_optional=is_optional
    )
    return field(default_factory=dict, metadata={_KEY: metric})


def same_as(metric: Metric) -> Any:
    """A field of a part with the declaration ``metric``."""
    return field(default=None, metadata={_KEY: metric})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Base of the parts. A field without a `Metric` is only carried.

    Carried fields go from one service to the next and are in no line of metrics.jsonl.
    """

    measured_by: ClassVar[Source]

    @classmethod
    def metrics(cls) -> Mapping[str, Metric]:
        """The declared metrics by name, in order."""
        return _metrics(cls)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_wire`` wrote; a missing name was not measured."""
        names = {field.name for field in fields(cls)}
        values = {name: value for name, value in data.items() if name in names}
        return cls(**{name: value for name, value in values.items() if value is not None})

    def to_line(self) -> dict[str, Any]:
        """The metrics as metrics.jsonl has them."""
        values = {name: getattr(self, name) for name in self.metrics()}
        return {
            name: value
            for name, value in values.items()
            if not (self.metrics()[name].is_optional and value in (None, {}))
        }

    def to_wire(self) -> dict[str, Any]:
        """Every field that has a value, for the next service to read."""
        carried = {
            field.name: value
            for field in fields(self)
            if field.name not in self.metrics()
            and (value := getattr(self, field.name)) not in (None, "", {})
        }
        return carried | self.to_line()


@cache
def _metrics(part: type[Part]) -> Mapping[str, Metric]:
    return {field.name: field.metadata[_KEY] for field in fields(part) if _KEY in field.metadata}
