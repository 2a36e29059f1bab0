"""The Prometheus series of the jobs that this process plays.

Owns the labels of a job: they are removed a while after its last play, so a process that runs for
months does not accumulate them.
"""

import asyncio

from troupe.runtime.telemetry import metrics

_OF_PLAY = (metrics.ROUTER_IN_FLIGHT, metrics.ROUTER_WAITING)
_OF_JOB = (
    metrics.ROUTER_TICKETS,
    metrics.ROUTER_AFFINITY,
    metrics.ROUTER_PROMPT_TOKENS,
    metrics.ROUTER_REFUSED,
    metrics.ROUTER_ROUTED,
    metrics.ROUTER_EPISODE_SECONDS,
)

_leaving: dict[str, asyncio.TimerHandle] = {}


def begin(job_id: str) -> None:
    """Keep the series of ``job_id`` until ``end``."""
    leaving = _leaving.pop(job_id, None)
    if leaving is not None:
        leaving.cancel()


def end(job_id: str, *, linger_s: float) -> None:
    """Remove the series that matter only during play now, and the rest after ``linger_s``."""
    begin(job_id)
    for metric in _OF_PLAY:
        metric.remove_by_labels({"job_id": job_id})
    _leaving[job_id] = asyncio.get_running_loop().call_later(linger_s, _forget, job_id)


def _forget(job_id: str) -> None:
    _leaving.pop(job_id, None)
    for metric in (*_OF_PLAY, *_OF_JOB):
        metric.remove_by_labels({"job_id": job_id})
