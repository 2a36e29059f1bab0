"""The blocking client: the calls of ``calls`` over httpx.

Owns connections and patience. Never retries a call that could count twice: a submission carries
an Idempotency-Key.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from troupe.clients.rest import answers, calls
from troupe.clients.rest import models as m
from troupe.clients.rest import runs as r
from troupe.clients.rest.retry import LOST, PAUSE_S, RetryWindow
from troupe.clients.rest.sse import parse_sse
from troupe.errors import InvalidArgumentError, UnavailableError

T = TypeVar("T")


class RestClient:
    """Blocking client of one router.

    ``retry_for_s``: how long a router that does not answer is asked again (reads, and submissions
    under one Idempotency-Key), so that a restart of the router is not seen. ``tls_ca``: file of
    the certificate authority of a router whose certificate is not public.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float = 20.0,
        retry_for_s: float = 0.0,
        tls_ca: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._retry_for_s = retry_for_s
        try:
            self._http = httpx.Client(
                transport=transport,
                **answers.connection(self._base_url, api_key, timeout_s, tls_ca),
            )
        except httpx.InvalidURL as error:
            raise answers.not_a_url(base_url, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_up(self) -> bool:
        """True when the router answers and can take jobs.

        Raises:
            UnavailableError: its certificate is not believed, which waiting does not mend.
        """
        try:
            return self._http.get("/readyz", timeout=2.0).status_code == 200
        except httpx.HTTPError as error:
            if answers.is_distrusted(error):
                raise answers.unreachable(self._base_url, error) from error
            return False

    def submit(
        self, spec: Mapping[str, Any], *, idempotency_key: str = "", priority: int = 0
    ) -> m.Job:
        """Submit a job; the same key never makes a second one.

        Raises:
            SpecInvalidError: the router refused the spec.
        """
        return self._do(calls.submit(spec, idempotency_key=idempotency_key, priority=priority))

    def dry_run(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """What the router would do with ``spec``; nothing starts."""
        return self._do(calls.dry_run(spec))

    def job(self, job_id: str) -> m.Job:
        """One job; raises NotFoundError."""
        return self._do(calls.job(job_id))

    def jobs(self, *, limit: int = 50, states: Sequence[str] = ()) -> list[m.Job]:
        """The newest jobs, newest first."""
        return self._do(calls.jobs(limit=limit, states=states)).jobs

    def cancel(self, job_id: str) -> m.Job:
        """Ask the job to end; a job that has ended stays as it is."""
        return self._do(calls.act(job_id, "cancel"))

    def pause(self, job_id: str) -> m.Job:
        """End the job's processes for now; ``resume`` goes on where it was."""
        return self._do(calls.act(job_id, "pause"))

    def resume(self, job_id: str, spec: Mapping[str, Any] | None = None) -> m.Job:
        """Queue a paused, failed or cancelled job again, from its last checkpoint.

        ``spec`` may change steps, limits, eval and checkpoint.
        """
        return self._do(calls.act(job_id, "resume", spec))

    def set_priority(self, job_id: str, priority: int) -> m.Job:
        """Change the priority of a job that waits."""
        return self._do(calls.change(job_id, priority=priority))

    def delete(self, job_id: str, *, files: bool = False) -> None:
        """Forget a job that has ended; ``files`` removes its run folder's files too."""
        self._do(calls.delete(job_id, files=files))

    def progress(self, job_id: str) -> m.JobProgress:
        """Where the job is, and what it waits for."""
        return self._do(calls.progress(job_id))

    def metrics(
        self, job_id: str, *, names: Sequence[str] = (), max_points: int | None = None
    ) -> r.Metrics:
        """The job's curves."""
        return self._do(calls.metrics(job_id, names=names, max_points=max_points))

    def step(self, job_id: str, number: int) -> r.Step:
        """One training step."""
        return self._do(calls.step(job_id, number))

    def episodes(self, job_id: str, **filters: Any) -> r.EpisodePage:
        """Recorded episodes; ``filters`` are the query parameters of the page."""
        return self._do(calls.episodes(job_id, **filters))

    def episode(self, job_id: str, episode_id: str) -> r.Episode:
        """One episode with its whole tree."""
        return self._do(calls.episode(job_id, episode_id))

    def checkpoints(self, job_id: str) -> list[r.Checkpoint]:
        """What can be downloaded, newest first."""
        return self._do(calls.checkpoints(job_id)).checkpoints

    def logs(self, job_id: str) -> list[r.LogFile]:
        """The logs of the job's processes."""
        return self._do(calls.logs(job_id)).components

    def log(self, job_id: str, component: str, **place: Any) -> r.LogPage:
        """Lines of a log: ``tail``, or ``after`` a place with ``wait_s``."""
        return self._do(calls.log(job_id, component, **place))

    def tasks(self) -> list[m.TaskFamily]:
        """Task families that the router knows."""
        return self._do(calls.tasks()).tasks

    def policies(self, job_id: str | None = None) -> list[m.Policy]:
        """Policies of jobs at work."""
        return self._do(calls.policies(job_id)).policies

    def replicas(self, job_id: str | None = None) -> list[m.Replica]:
        """Living replicas."""
        return self._do(calls.replicas(job_id)).replicas

    def quota(self) -> m.Quota:
        """What jobs may take together, and who waits."""
        return self._do(calls.quota())

    def session(self) -> m.Session:
        """Who this client is to the router."""
        return self._do(calls.session())

    def download(
        self, job_id: str, checkpoint: str, policy: str, target: Path, *, format: str = "peft"
    ) -> Path:
        """Write the tar archive of a checkpoint's policy to ``target``; it is there wholly or not.

        Raises:
            ConflictError: the checkpoint has no such format.
            InvalidArgumentError: ``target`` can't be written.
        """
        if target.is_dir():
            raise InvalidArgumentError(f"{target} is a folder; give the path of a file in it.")
        draft = target.with_name(f".{target.name}.part")
        path = calls.download_path(job_id, checkpoint, policy)
        try:
            with self._http.stream("GET", path, params={"format": format}) as response:
                if response.is_error:
                    response.read()
                    raise answers.problem_of(response)
                with draft.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
        except httpx.TransportError as error:
            draft.unlink(missing_ok=True)
            raise answers.unreachable(self._base_url, error) from error
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise InvalidArgumentError(
                f"{target} can't be written ({error.strerror}); give another path with room."
            ) from error
        return draft.replace(target)

    def events(self, job_id: str, *, after: str = "0") -> Iterator[m.JobEvent]:
        """Events after the place ``after`` as they happen, until the job is over.

        A lost connection is taken up again where it broke, for ``retry_for_s``.
        """
        place, patience = after, RetryWindow(self._base_url, self._retry_for_s)
        while True:
            try:
                for event in self._stream(job_id, place):
                    place = event.id or place
                    patience.restore()
                    yield event
            except LOST as error:
                time.sleep(patience.lose(error))
                continue
            if self.job(job_id).is_over:
                return
            time.sleep(PAUSE_S)

    def _stream(self, job_id: str, after: str) -> Iterator[m.JobEvent]:
        with self._http.stream(**calls.events_stream(job_id, after)) as response:
            if response.is_error:
                response.read()
                raise answers.problem_of(response)
            yield from parse_sse(response.iter_lines())

    def _do(self, call: calls.Call[T]) -> T:
        """One idempotent call, asked again while the router does not answer."""
        patience = RetryWindow(self._base_url, self._retry_for_s)
        while True:
            try:
                response = self._http.request(**call.sent())
                return call.read(answers.document_of(response, self._base_url))
            except (UnavailableError, httpx.HTTPError, httpx.InvalidURL) as error:
                time.sleep(patience.lose(error))
