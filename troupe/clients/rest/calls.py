"""Every call of the REST API as data: what is sent, and how the answer is read. Pure.

Owns URLs, parameters and the model of each answer, once for both clients. Never does I/O.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from troupe.clients.rest import models as m
from troupe.clients.rest import runs as r
from troupe.errors import TroupeError

T = TypeVar("T")
_M = TypeVar("_M", bound=BaseModel)
Params = dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. ``read`` makes the value of the answer's JSON; every call may be repeated."""

    method: str
    path: str
    read: Callable[[Any], T]
    params: Params = field(default_factory=dict[str, str | list[str]])
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def sent(self) -> dict[str, Any]:
        """Arguments of httpx's ``request``."""
        return {
            "method": self.method,
            "url": self.path,
            "params": self.params or None,
            "json": self.json,
            "headers": dict(self.headers),
        }


def submit(spec: Mapping[str, Any], *, idempotency_key: str = "", priority: int = 0) -> Call[m.Job]:
    """Submit a job, once for its key."""
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    params = _params(priority=priority or None)
    return Call("POST", "/v1/jobs", _reads(m.Job), params, dict(spec), headers)


def dry_run(spec: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Plan a job."""
    return Call("POST", "/v1/jobs", _mapping, _params(dry_run=True), dict(spec))


def job(job_id: str) -> Call[m.Job]:
    """One job."""
    return Call("GET", _job(job_id), _reads(m.Job))


def jobs(
    *, limit: int = 50, cursor: str | None = None, states: Sequence[str] = ()
) -> Call[m.JobPage]:
    """A page of jobs."""
    params = _params(limit=limit, cursor=cursor, state=states)
    return Call("GET", "/v1/jobs", _reads(m.JobPage), params)


def change(job_id: str, *, priority: int) -> Call[m.Job]:
    """Change a job that waits."""
    return Call("PATCH", _job(job_id), _reads(m.Job), json={"priority": priority})


def act(job_id: str, verb: str, body: Mapping[str, Any] | None = None) -> Call[m.Job]:
    """Cancel, pause or resume a job."""
    document = dict(body) if body is not None else None
    return Call("POST", f"{_job(job_id)}/{verb}", _reads(m.Job), json=document)


def delete(job_id: str, *, files: bool) -> Call[None]:
    """Forget a job."""
    return Call("DELETE", _job(job_id), _nothing, _params(files=files or None))


def progress(job_id: str) -> Call[m.JobProgress]:
    """What a job waits for."""
    return Call("GET", f"{_job(job_id)}/progress", _reads(m.JobProgress))


def events_page(
    job_id: str, *, after: str = "0", limit: int = 100, wait_s: float = 0.0
) -> Call[m.EventPage]:
    """A page of events."""
    params = _params(after=after, limit=limit, wait_s=wait_s or None)
    return Call("GET", f"{_job(job_id)}/events", _reads(m.EventPage), params)


def metrics(
    job_id: str, *, names: Sequence[str] = (), from_step: int = 0, max_points: int | None = None
) -> Call[r.Metrics]:
    """Curves."""
    params = _params(names=names, from_step=from_step or None, max_points=max_points)
    return Call("GET", f"{_job(job_id)}/metrics", _reads(r.Metrics), params)


def steps(job_id: str, *, limit: int = 50, cursor: str | None = None) -> Call[r.StepPage]:
    """Lines of training steps."""
    params = _params(limit=limit, cursor=cursor)
    return Call("GET", f"{_job(job_id)}/steps", _reads(r.StepPage), params)


def step(job_id: str, number: int) -> Call[r.Step]:
    """One training step."""
    return Call("GET", f"{_job(job_id)}/steps/{number}", _reads(r.Step))


def episodes(job_id: str, **filters: Any) -> Call[r.EpisodePage]:
    """Recorded episodes; ``filters`` are the query parameters."""
    return Call("GET", f"{_job(job_id)}/episodes", _reads(r.EpisodePage), _params(**filters))


def episode(job_id: str, episode_id: str) -> Call[r.Episode]:
    """One episode's tree."""
    name = quote(episode_id, safe="")
    return Call("GET", f"{_job(job_id)}/episodes/{name}", _reads(r.Episode))


def checkpoints(job_id: str) -> Call[r.CheckpointList]:
    """What can be downloaded."""
    return Call("GET", f"{_job(job_id)}/checkpoints", _reads(r.CheckpointList))


def logs(job_id: str) -> Call[r.LogList]:
    """Which logs there are."""
    return Call("GET", f"{_job(job_id)}/logs", _reads(r.LogList))


def log(
    job_id: str,
    component: str,
    *,
    tail: int | None = None,
    after: int | None = None,
    wait_s: float = 0.0,
) -> Call[r.LogPage]:
    """Lines of a log: the last ``tail``, or those after a place."""
    params = _params(tail=tail, after=after, wait_s=wait_s or None)
    path = f"{_job(job_id)}/logs/{quote(component, safe='')}"
    return Call("GET", path, _reads(r.LogPage), params)


def tasks() -> Call[m.TaskList]:
    """Installed task families."""
    return Call("GET", "/v1/tasks", _reads(m.TaskList))


def policies(job_id: str | None = None) -> Call[m.PolicyList]:
    """Policies of jobs at work."""
    return Call("GET", "/v1/policies", _reads(m.PolicyList), _params(job_id=job_id))


def replicas(job_id: str | None = None) -> Call[m.ReplicaList]:
    """Living replicas."""
    return Call("GET", "/v1/replicas", _reads(m.ReplicaList), _params(job_id=job_id))


def quota() -> Call[m.Quota]:
    """What may be taken, and who waits."""
    return Call("GET", "/v1/quota", _reads(m.Quota))


def session() -> Call[m.Session]:
    """Who the caller is."""
    return Call("GET", "/v1/session", _reads(m.Session))


def download_path(job_id: str, checkpoint: str, policy: str) -> str:
    """Path of a checkpoint's archive."""
    return f"{_job(job_id)}/checkpoints/{quote(checkpoint, safe='')}/{quote(policy, safe='')}"


def events_stream(job_id: str, after: str) -> dict[str, Any]:
    """Arguments of httpx's ``stream`` for a job's events after a place."""
    return {
        "method": "GET",
        "url": f"{_job(job_id)}/events",
        "params": {"after": after},
        "headers": {"Accept": "text/event-stream"},
        "timeout": httpx.Timeout(10.0, read=90.0),
    }


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _params(**values: Any) -> Params:
    """Query parameters that are given; lists repeat, booleans are words."""
    found: Params = {}
    for name, value in values.items():
        if value is None or value == ():
            continue
        if isinstance(value, list | tuple):
            found[name] = [str(item) for item in value]
        else:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _reads(model: type[_M]) -> Callable[[Any], _M]:
    def read(document: Any) -> _M:
        try:
            return model.model_validate(document)
        except ValidationError as error:
            what = {"Job": "a job"}.get(model.__name__, f"a {model.__name__}")
            raise TroupeError(
                f"the router's answer is not {what} ({error.error_count()} faults, the first: "
                f"{error.errors()[0]['msg']}); router and command must be of one version"
            ) from error

    return read


def _mapping(document: Any) -> dict[str, Any]:
    return dict(document)


def _nothing(document: Any) -> None:
    del document
