"""One job's learning as Prometheus series, from its step lines and events.

Owns the labels of a job: they are removed a while after its last work here (when Prometheus has
read the last values), so a router that runs for months does not accumulate them. Never a source of
truth; counters start again with the process.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from troupe.runtime.step_report.catalogue import METRICS, metric_of
from troupe.runtime.step_report.metric import LEARNING_VALUE, Series
from troupe.runtime.streams.events import StoredEvent
from troupe.runtime.telemetry import metrics

_OF_WORK = (
    metrics.JOB_WAITING_SECONDS,
    metrics.JOB_OVERDUE,
    metrics.JOB_STREAM_ENTRIES,
    metrics.JOB_VERSION_LAG,
)
_OF_JOB = (
    metrics.JOB_STEP,
    metrics.JOB_NUM_STEPS,
    metrics.JOB_SUCCESS,
    metrics.JOB_REWARD,
    metrics.JOB_VALUE,
    metrics.JOB_PHASE_SECONDS,
    metrics.JOB_STEP_SECONDS,
    metrics.JOB_GROUPS,
    metrics.JOB_TOKENS,
    metrics.JOB_PARITY_ALARMS,
    metrics.JOB_PUSHES_REFUSED,
    metrics.JOB_REWARD_SUSPECTS,
    metrics.JOB_RESTARTS,
)
_BY_NAME = {next(iter(metric.describe())).name: metric for metric in _OF_JOB}

_leaving: dict[str, asyncio.TimerHandle] = {}
_counted: dict[str, tuple[int, int]] = {}
"""The place of the last event of each job that is in its counters."""
_keyed: dict[tuple[str, str], set[str]] = {}
"""Of the last line of each job and kind, the values that mappings have: replica_idle.<id>, ..."""


def observe_line(job_id: str, line: Mapping[str, Any]) -> None:
    """Write a line of metrics.jsonl to the series of ``job_id``."""
    kind = str(line["kind"])
    if kind == "train":
        metrics.JOB_STEP.labels(job_id).set(line["step"] + 1)
    keyed: set[str] = set()
    for name, value in line.items():
        if name not in ("kind", "step"):
            series = metric_of(kind, name).series
            for keys, number in _numbers(value):
                path = (name, *keys)
                _observe(job_id, kind, path, series, number)
                if keys and series == Series():
                    keyed.add(_value_name(kind, path))
    # A replica that left, and a failure that came no more, are in no later line.
    for gone in _keyed.get((job_id, kind), set[str]()) - keyed:
        metrics.JOB_VALUE.remove_by_labels({"job_id": job_id, "name": gone})
    _keyed[job_id, kind] = keyed


def _observe(job_id: str, kind: str, path: Sequence[str], series: Series, value: float) -> None:
    """Write one number, whose name in the line is ``path``."""
    keys = dict(zip(series.keys, path[1:], strict=False))
    labels = {"job_id": job_id, **series.labels, **keys}
    if series.keys:
        labels[series.keys[-1]] = series.prefix + labels[series.keys[-1]]
    if series.metric == LEARNING_VALUE:
        labels["name"] = _value_name(kind, path[len(keys) + 1 :] if keys else path)
        labels.setdefault("policy", "")
    metric = _metric_of(series).labels(**labels)
    if isinstance(metric, Gauge):
        metric.set(value)
    elif isinstance(metric, Histogram):
        metric.observe(value)
    else:
        metric.inc(max(0.0, value))


def _value_name(kind: str, path: Sequence[str]) -> str:
    name = ".".join(path)
    return name if kind == "train" else f"{kind}_{name}"


def _metric_of(series: Series) -> Gauge | Histogram | Counter:
    return _BY_NAME[series.metric.removesuffix("_total")]


def _numbers(value: Any) -> Iterator[tuple[tuple[str, ...], float]]:
    """The numbers of a value with the keys that lead to each; True and False are 1 and 0."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            for keys, number in _numbers(inner):
                yield (str(key), *keys), number
    elif isinstance(value, int | float):
        yield (), float(value)


def count_event(job_id: str, stored: StoredEvent, data: Mapping[str, Any]) -> None:
    """Count an event once, whichever controllers of the job read it here.

    ``data``: of ``stored``. Events come in the order of their places.
    """
    if stored.place > _counted.get(job_id, (0, 0)):
        _counted[job_id] = stored.place
        observe_event(job_id, stored.event.type, data)


def observe_event(job_id: str, type: str, data: Mapping[str, Any]) -> None:
    """Count an event of ``job_id`` that has a series."""
    if type == "parity.alarm":
        metrics.JOB_PARITY_ALARMS.labels(job_id, data["policy"]).inc()
    elif type == "weights.refused":
        cause = data.get("cause", "other")
        metrics.JOB_PUSHES_REFUSED.labels(job_id, data["policy"], cause).inc()
    elif type == "reward.suspect":
        metrics.JOB_REWARD_SUSPECTS.labels(job_id).inc()
    elif type == "component.restarted":
        metrics.JOB_RESTARTS.labels(job_id).inc()


def begin(job_id: str, num_steps: int, policies: Iterable[str]) -> None:
    """Show ``job_id`` and keep its series until ``end``."""
    _stay(job_id)
    metrics.JOB_NUM_STEPS.labels(job_id).set(num_steps)
    metrics.start_at_zero(metrics.JOB_RESTARTS, [job_id])
    metrics.start_at_zero(metrics.JOB_REWARD_SUSPECTS, [job_id])
    policies = list(policies)
    metrics.start_at_zero(metrics.JOB_PARITY_ALARMS, [job_id], policies)
    metrics.start_at_zero(metrics.JOB_PUSHES_REFUSED, [job_id], policies, ["canary", "other"])
    for entry in METRICS["train"].values():
        series = entry.metric.series
        if isinstance(_metric_of(series), Counter) and not series.keys:
            _metric_of(series).labels(job_id=job_id, **series.labels)


def end(job_id: str, *, linger_s: float) -> None:
    """Remove the series that mean something only while ``job_id`` is at work.

    Its others go after ``linger_s``, unless it begins again.
    """
    _stay(job_id)
    for metric in _OF_WORK:
        metric.remove_by_labels({"job_id": job_id})
    _leaving[job_id] = asyncio.get_running_loop().call_later(linger_s, _forget, job_id)


def _stay(job_id: str) -> None:
    leaving = _leaving.pop(job_id, None)
    if leaving is not None:
        leaving.cancel()


def _forget(job_id: str) -> None:
    _leaving.pop(job_id, None)
    _counted.pop(job_id, None)
    for kind in METRICS:
        _keyed.pop((job_id, kind), None)
    for metric in (*_OF_WORK, *_OF_JOB):
        metric.remove_by_labels({"job_id": job_id})
