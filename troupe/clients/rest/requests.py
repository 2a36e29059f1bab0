"""Builds the paths and parameters that both clients send. Pure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

JOBS, RUN_FOLDERS = "/v1/jobs", "/v1/run-folders"
BUNDLES, DRY_RUNS = "/v1/bundles", "/v1/dry-runs"


def job_path(job_id: str, *parts: str) -> str:
    """Path of a job, or of a resource under it."""
    return "/".join((JOBS, *(quote(part, safe="") for part in (job_id, *parts))))


def params_of(query: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The query parameters that have a value; lists repeat, booleans are "true" or "false"."""
    params: dict[str, str | list[str]] = {}
    for name, value in query.items():
        if value is None or value == () or value == []:
            continue
        if isinstance(value, list | tuple):
            params[name] = [str(item) for item in value]
        else:
            params[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return params


def events_stream(job_id: str, after: str) -> dict[str, Any]:
    """Arguments of httpx's ``stream`` for a job's events after a place."""
    return {
        "method": "GET",
        "url": job_path(job_id, "events"),
        "params": {"after": after},
        "headers": {"Accept": "text/event-stream"},
        "timeout": httpx.Timeout(10.0, read=90.0),
    }
