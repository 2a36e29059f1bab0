"""One job's learning as Prometheus series, taken from its step lines and events.

Owns the labels of a job: they go a while after its end (Prometheus has seen the last values by
then), so a router that lives for months does not collect them. Never a source of truth; counters
start again with the process.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from troupe.runtime.telemetry import metrics

_COUNTED = {"groups_trained": "trained", "groups_zero_variance": "zero_variance"}
_TOKENS = {"trained_tokens": "trained", "num_tokens": "sampled"}
_NOT_LEARNING = frozenset(
    {*_COUNTED, *_TOKENS, "step", "policy_version", "wall_s", "success_rate", "num_tasks"}
)
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
    metrics.JOB_RESTARTS,
)

_leaving: dict[str, asyncio.TimerHandle] = {}


def observe_line(job_id: str, line: Mapping[str, Any]) -> None:
    """Take a line of metrics.jsonl over into the series of ``job_id``."""
    if line["kind"] == "eval":
        if line.get("success") is not None:
            metrics.JOB_SUCCESS.labels(job_id, "eval").set(line["success"])
        return
    metrics.JOB_STEP.labels(job_id).set(line["step"] + 1)
    metrics.JOB_STEP_SECONDS.labels(job_id).observe(line["wall_s"])
    if line.get("success_rate") is not None:
        metrics.JOB_SUCCESS.labels(job_id, "train").set(line["success_rate"])
    for agent, reward in (line.get("reward_by_agent") or {}).items():
        if reward is not None:
            metrics.JOB_REWARD.labels(job_id, agent).set(reward)
    for phase, seconds in (line.get("phases") or {}).items():
        metrics.JOB_PHASE_SECONDS.labels(job_id, phase).inc(max(0.0, seconds))
    for name, outcome in _COUNTED.items():
        metrics.JOB_GROUPS.labels(job_id, outcome).inc(line.get(name) or 0)
    for reason, count in (line.get("groups_dropped") or {}).items():
        metrics.JOB_GROUPS.labels(job_id, f"dropped_{reason}").inc(count)
    for name, kind in _TOKENS.items():
        metrics.JOB_TOKENS.labels(job_id, kind).inc(line.get(name) or 0)
    _values(job_id, "", line)
    for policy, own in (line.get("by_policy") or {}).items():
        _values(job_id, policy, own)


def observe_event(job_id: str, type: str, data: Mapping[str, Any]) -> None:
    """Count an event of ``job_id`` that has a series."""
    if type == "parity.alarm":
        metrics.JOB_PARITY_ALARMS.labels(job_id, data["policy"]).inc()
    elif type == "component.restarted":
        metrics.JOB_RESTARTS.labels(job_id).inc()


def begin(job_id: str, num_steps: int) -> None:
    """Show ``job_id``: its series stay until ``end``."""
    leaving = _leaving.pop(job_id, None)
    if leaving is not None:
        leaving.cancel()
    metrics.JOB_NUM_STEPS.labels(job_id).set(num_steps)
    metrics.JOB_RESTARTS.labels(job_id).inc(0)


def rest(job_id: str) -> None:
    """Remove the series that mean something only while ``job_id`` is at work."""
    for metric in _OF_WORK:
        metric.remove_by_labels({"job_id": job_id})


def end(job_id: str, *, linger_s: float) -> None:
    """Let the job rest, and remove its other series after ``linger_s``."""
    rest(job_id)
    loop = asyncio.get_running_loop()
    _leaving[job_id] = loop.call_later(linger_s, _forget, job_id)


def _forget(job_id: str) -> None:
    _leaving.pop(job_id, None)
    for metric in (*_OF_WORK, *_OF_JOB):
        metric.remove_by_labels({"job_id": job_id})


def _values(job_id: str, policy: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name not in _NOT_LEARNING:
            metrics.JOB_VALUE.labels(job_id, policy, name).set(value)
