"""A line of metrics.jsonl as flat numbers with the names that trackers show. Pure."""

import math
from collections.abc import Mapping
from typing import Any

_GROUPS: Mapping[str, str] = {
    "phases": "time",
    "reward_by_agent": "reward",
    "reward_by_term": "reward_term",
    "groups_dropped": "groups_dropped",
    "by_policy": "policy",
}
_NOT_VALUES = frozenset({"kind", "step", "interrupted"})


def tracked_values(line: Mapping[str, Any]) -> dict[str, float]:
    """Names and finite numbers of ``line``: "train/loss", "eval/success", "time/learn", ...

    Nested mappings become path segments ("policy/planner/kl_rollout"). None and text are left out:
    a number that was not measured is no point on a curve.
    """
    kind = str(line["kind"])
    found: dict[str, float] = {}
    for name, value in line.items():
        if name in _NOT_VALUES:
            continue
        if isinstance(value, Mapping):
            _flatten(found, _GROUPS.get(name, f"{kind}/{name}"), value)
        else:
            _put(found, f"{kind}/{name}", value)
    return found


def tracked_step(line: Mapping[str, Any]) -> int:
    """Where the line is on the axis: steps done, so an evaluation shares it with training."""
    return int(line["step"]) + (line["kind"] == "train")


def _flatten(found: dict[str, float], prefix: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            _flatten(found, f"{prefix}/{name}", value)
        else:
            _put(found, f"{prefix}/{name}", value)


def _put(found: dict[str, float], name: str, value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        found[name] = float(value)
