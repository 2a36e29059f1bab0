"""A line of metrics.jsonl as flat numbers with the names that trackers show. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from troupe.runtime.step_report.catalogue import metric_of


def tracked_values(line: Mapping[str, Any]) -> dict[str, float]:
    """Names and finite numbers of ``line``: "train/loss", "eval/success", "time/learn", ...

    Nested mappings become path segments ("policy/planner/kl_rollout"), True and False 1 and 0. None
    and text are left out: a number that was not measured is no point on a curve.
    """
    kind = str(line["kind"])
    values: dict[str, float] = {}
    for name, value in line.items():
        if name not in ("kind", "step"):
            _put(values, metric_of(kind, name).tracked_as or f"{kind}/{name}", value)
    return values


def tracked_step(line: Mapping[str, Any]) -> int:
    """The line's position on the x axis: steps done, for training and evaluations alike."""
    return int(line["step"]) + (line["kind"] == "train")


def _put(values: dict[str, float], name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _put(values, f"{name}/{key}", inner)
    elif isinstance(value, int | float) and math.isfinite(value):
        values[name] = float(value)
