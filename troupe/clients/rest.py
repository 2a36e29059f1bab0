"""The router's REST API as typed calls: submit, look, follow and steer jobs.

Owns URLs, JSON shapes and the way back from problem+json to a TroupeError. Never retries a call
that could count twice: a submission carries an Idempotency-Key.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from troupe.errors import (
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    TroupeError,
    UnavailableError,
    error_for_reason,
)
from troupe.spec.issues import Issue, SpecInvalidError

JobState = Literal[
    "queued", "launching", "running", "cancelling", "succeeded", "failed", "cancelled"
]
TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})

_BY_STATUS: Mapping[int, type[TroupeError]] = {
    404: NotFoundError,
    409: ConflictError,
    422: InvalidArgumentError,
    429: OverloadedError,
    503: UnavailableError,
    504: DeadlineError,
}
_RETRY_PAUSE_S = 0.5


class Job(BaseModel):
    """A job as the router shows it.

    Example: ``Job(job_id="demo-1", name="demo", state="running", step=3, steps=40)``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    job_id: str
    name: str = ""
    state: JobState
    step: int = 0
    steps: int = 0
    run_dir: str = ""
    reason: str = ""
    error: str | None = None
    created_at: float | None = None
    spec: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """True in a state that nothing follows."""
        return self.state in TERMINAL


class JobEvent(BaseModel):
    """One thing that happened to a job; ``id`` is its place, for ``events(after=...)``.

    Example: ``JobEvent(id="17-0", type="job.state", data={"state": "running"})``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    type: str
    occurred_at: float = 0.0
    source: str = ""
    data: dict[str, Any] = {}


class RestClient:
    """Blocking client of one router.

    ``retry_for_s``: how long a router that does not answer is asked again (reads, and submissions
    under one Idempotency-Key), so that a restart of the router is not seen.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 20.0,
        retry_for_s: float = 0.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._retry_for_s = retry_for_s
        try:
            self._http = httpx.Client(
                base_url=self._base_url, timeout=timeout_s, transport=transport, trust_env=False
            )
        except httpx.InvalidURL as error:
            raise InvalidArgumentError(
                f"{base_url!r} is not a URL of a router ({error}); give http://host:port with "
                "--url or TROUPE_REST_URL."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_up(self) -> bool:
        """True when the router answers and can take jobs."""
        try:
            return self._http.get("/readyz", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def submit(self, spec: Mapping[str, Any], *, idempotency_key: str = "") -> Job:
        """Submit a job; the same key never makes a second one.

        Raises:
            SpecInvalidError: the router refused the spec.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return _job(self._call("POST", "/v1/jobs", json=dict(spec), headers=headers))

    def dry_run(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """What the router would do with ``spec``; nothing starts."""
        return self._call("POST", "/v1/jobs", json=dict(spec), params={"dry_run": "true"})

    def job(self, job_id: str) -> Job:
        """One job; raises NotFoundError."""
        return _job(self._call("GET", f"/v1/jobs/{job_id}"))

    def jobs(self, *, limit: int = 50) -> list[Job]:
        """The newest jobs, newest first."""
        answer = self._call("GET", "/v1/jobs", params={"limit": str(limit)})
        return [_job(document) for document in answer.get("jobs", [])]

    def cancel(self, job_id: str) -> Job:
        """Ask the job to end; a job that has ended stays as it is."""
        return _job(self._call("POST", f"/v1/jobs/{job_id}/cancel"))

    def resume(self, job_id: str, spec: Mapping[str, Any] | None = None) -> Job:
        """Queue a failed or cancelled job again, from its last checkpoint.

        ``spec`` may change steps, limits, eval and checkpoint.
        """
        body = dict(spec) if spec is not None else None
        return _job(self._call("POST", f"/v1/jobs/{job_id}/resume", json=body))

    def events(self, job_id: str, *, after: str = "0") -> Iterator[JobEvent]:
        """Events after the place ``after`` as they happen, until the job is over.

        A lost connection is taken up again where it broke, for ``retry_for_s``.
        """
        place, lost_at = after, None
        while True:
            try:
                for event in self._stream(job_id, place):
                    place, lost_at = event.id or place, None
                    yield event
            except (UnavailableError, httpx.TransportError) as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self._retry_for_s:
                    raise self._unreachable(error) from error
                time.sleep(_RETRY_PAUSE_S)
                continue
            if self.job(job_id).is_over:
                return
            time.sleep(_RETRY_PAUSE_S)

    def _stream(self, job_id: str, after: str) -> Iterator[JobEvent]:
        with self._http.stream(
            "GET",
            f"/v1/jobs/{job_id}/events",
            params={"after": after},
            headers={"Accept": "text/event-stream"},
            timeout=httpx.Timeout(10.0, read=90.0),
        ) as response:
            if response.is_error:
                response.read()
                raise _problem(response)
            yield from parse_sse(response.iter_lines())

    def _call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """One idempotent call, asked again while the router does not answer."""
        return self._patiently(lambda: self._once(method, path, **request))

    def _once(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        response = self._http.request(method, path, **request)
        if response.is_error:
            raise _problem(response)
        try:
            document = response.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._stranger()
        return document

    def _patiently(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        deadline = time.monotonic() + self._retry_for_s
        while True:
            try:
                return call()
            except (UnavailableError, httpx.TransportError) as error:
                if time.monotonic() >= deadline:
                    raise self._unreachable(error) from error
            except httpx.InvalidURL as error:
                raise InvalidArgumentError(f"{self._base_url}: {error}") from error
            time.sleep(_RETRY_PAUSE_S)

    def _unreachable(self, error: Exception) -> UnavailableError:
        if isinstance(error, UnavailableError):
            return error
        return UnavailableError(
            f"No router answers at {self._base_url} ({type(error).__name__}: {error}). Start one "
            "with `troupe up`, or name another with --url or TROUPE_REST_URL."
        )

    def _stranger(self) -> TroupeError:
        return TroupeError(
            f"What answers at {self._base_url} is not a Troupe router (its answer is not a JSON "
            "object); check the port, or name the router with --url or TROUPE_REST_URL."
        )


def parse_sse(lines: Iterator[str]) -> Iterator[JobEvent]:
    """Events of a ``text/event-stream``; comments (keep-alives) are skipped."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif fields:
            if "data" in fields:
                yield _event(fields)
            fields = {}


def _event(fields: Mapping[str, str]) -> JobEvent:
    try:
        document = json.loads(fields["data"])
        known = {k: v for k, v in document.items() if k in ("type", "occurred_at", "source")}
        known.setdefault("type", fields.get("event", "message"))
        data = document["data"] if isinstance(document.get("data"), dict) else document
        return JobEvent(id=fields.get("id", ""), data=data, **known)
    except (ValueError, AttributeError) as error:
        raise TroupeError(f"the router sent an event that cannot be read: {error}") from error


def _job(document: dict[str, Any]) -> Job:
    try:
        return Job.model_validate(document)
    except ValidationError as error:
        raise TroupeError(
            f"the router's answer is not a job ({error.error_count()} faults, the first: "
            f"{error.errors()[0]['msg']}); router and command must be of one version"
        ) from error


def _problem(response: httpx.Response) -> TroupeError:
    """The error that a problem+json answer (RFC 9457) stands for."""
    try:
        document: Any = response.json()
    except ValueError:
        document = None
    problem: dict[str, Any] = document if isinstance(document, dict) else {}
    message = str(problem.get("detail") or problem.get("title") or response.text[:300]).strip()
    message = message or f"HTTP status {response.status_code} from {response.url}"
    errors = problem.get("errors")
    if response.status_code == 422 and isinstance(errors, list) and errors:
        issues = [
            Issue(str(e.get("pointer", "")), str(e.get("message") or e.get("detail") or "invalid"))
            for e in errors
            if isinstance(e, dict)
        ]
        return SpecInvalidError(issues or [Issue("", message)])
    cls = error_for_reason(str(problem.get("reason", ""))) or _BY_STATUS.get(
        response.status_code, TroupeError
    )
    if issubclass(cls, SpecInvalidError):
        cls = InvalidArgumentError
    return cls(message, pointer=problem.get("pointer"))
