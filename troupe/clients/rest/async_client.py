"""The async client: the same calls as the blocking one, awaited.

Owns connections and patience. Never retries a call that could count twice.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from troupe.clients.rest import answers, calls
from troupe.clients.rest import models as m
from troupe.clients.rest import runs as r
from troupe.clients.rest.retry import LOST, PAUSE_S, RetryWindow
from troupe.clients.rest.sse import SseReader
from troupe.errors import UnavailableError

T = TypeVar("T")


class AsyncRestClient:
    """Async client of one router; the arguments are those of ``RestClient``."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float = 20.0,
        retry_for_s: float = 0.0,
        tls_ca: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._retry_for_s = retry_for_s
        try:
            self._http = httpx.AsyncClient(
                transport=transport,
                **answers.connection(self._base_url, api_key, timeout_s, tls_ca),
            )
        except httpx.InvalidURL as error:
            raise answers.not_a_url(base_url, error) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def submit(
        self, spec: Mapping[str, Any], *, idempotency_key: str = "", priority: int = 0
    ) -> m.Job:
        """Submit a job; the same key never makes a second one; raises SpecInvalidError."""
        call = calls.submit(spec, idempotency_key=idempotency_key, priority=priority)
        return await self._do(call)

    async def dry_run(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """What the router would do with ``spec``; nothing starts."""
        return await self._do(calls.dry_run(spec))

    async def job(self, job_id: str) -> m.Job:
        """One job; raises NotFoundError."""
        return await self._do(calls.job(job_id))

    async def jobs(self, *, limit: int = 50, states: Sequence[str] = ()) -> list[m.Job]:
        """The newest jobs, newest first."""
        return (await self._do(calls.jobs(limit=limit, states=states))).jobs

    async def cancel(self, job_id: str) -> m.Job:
        """Ask the job to end; a job that has ended stays as it is."""
        return await self._do(calls.act(job_id, "cancel"))

    async def pause(self, job_id: str) -> m.Job:
        """End the job's processes for now; ``resume`` goes on where it was."""
        return await self._do(calls.act(job_id, "pause"))

    async def resume(self, job_id: str, spec: Mapping[str, Any] | None = None) -> m.Job:
        """Queue a paused, failed or cancelled job again, from its last checkpoint."""
        return await self._do(calls.act(job_id, "resume", spec))

    async def set_priority(self, job_id: str, priority: int) -> m.Job:
        """Change the priority of a job that waits."""
        return await self._do(calls.change(job_id, priority=priority))

    async def delete(self, job_id: str, *, files: bool = False) -> None:
        """Forget a job that has ended; ``files`` removes its run folder's files too."""
        await self._do(calls.delete(job_id, files=files))

    async def progress(self, job_id: str) -> m.JobProgress:
        """Where the job is, and what it waits for."""
        return await self._do(calls.progress(job_id))

    async def metrics(
        self, job_id: str, *, names: Sequence[str] = (), max_points: int | None = None
    ) -> r.Metrics:
        """The job's curves."""
        return await self._do(calls.metrics(job_id, names=names, max_points=max_points))

    async def step(self, job_id: str, number: int) -> r.Step:
        """One training step."""
        return await self._do(calls.step(job_id, number))

    async def episodes(self, job_id: str, **filters: Any) -> r.EpisodePage:
        """Recorded episodes; ``filters`` are the query parameters of the page."""
        return await self._do(calls.episodes(job_id, **filters))

    async def episode(self, job_id: str, episode_id: str) -> r.Episode:
        """One episode with its whole tree."""
        return await self._do(calls.episode(job_id, episode_id))

    async def checkpoints(self, job_id: str) -> list[r.Checkpoint]:
        """What can be downloaded, newest first."""
        return (await self._do(calls.checkpoints(job_id))).checkpoints

    async def logs(self, job_id: str) -> list[r.LogFile]:
        """The logs of the job's processes."""
        return (await self._do(calls.logs(job_id))).components

    async def log(self, job_id: str, component: str, **place: Any) -> r.LogPage:
        """Lines of a log: ``tail``, or ``after`` a place with ``wait_s``."""
        return await self._do(calls.log(job_id, component, **place))

    async def tasks(self) -> list[m.TaskFamily]:
        """Task families that the router knows."""
        return (await self._do(calls.tasks())).tasks

    async def policies(self, job_id: str | None = None) -> list[m.Policy]:
        """Policies of jobs at work."""
        return (await self._do(calls.policies(job_id))).policies

    async def replicas(self, job_id: str | None = None) -> list[m.Replica]:
        """Living replicas."""
        return (await self._do(calls.replicas(job_id))).replicas

    async def quota(self) -> m.Quota:
        """What jobs may take together, and who waits."""
        return await self._do(calls.quota())

    async def session(self) -> m.Session:
        """Who this client is to the router."""
        return await self._do(calls.session())

    async def events(self, job_id: str, *, after: str = "0") -> AsyncIterator[m.JobEvent]:
        """Events after the place ``after`` as they happen, until the job is over.

        A lost connection is taken up again where it broke, for ``retry_for_s``.
        """
        place, patience = after, RetryWindow(self._base_url, self._retry_for_s)
        while True:
            try:
                async for event in self._stream(job_id, place):
                    place = event.id or place
                    patience.restore()
                    yield event
            except LOST as error:
                await asyncio.sleep(patience.lose(error))
                continue
            if (await self.job(job_id)).is_over:
                return
            await asyncio.sleep(PAUSE_S)

    async def _stream(self, job_id: str, after: str) -> AsyncIterator[m.JobEvent]:
        reader = SseReader()
        async with self._http.stream(**calls.events_stream(job_id, after)) as response:
            if response.is_error:
                await response.aread()
                raise answers.problem_of(response)
            async for line in response.aiter_lines():
                event = reader.take(line)
                if event is not None:
                    yield event

    async def _do(self, call: calls.Call[T]) -> T:
        """One idempotent call, asked again while the router does not answer."""
        patience = RetryWindow(self._base_url, self._retry_for_s)
        while True:
            try:
                response = await self._http.request(**call.sent())
                return call.read(answers.document_of(response, self._base_url))
            except (UnavailableError, httpx.HTTPError, httpx.InvalidURL) as error:
                await asyncio.sleep(patience.lose(error))
