"""The async client of the REST API, and the one place where its calls are written.

scripts/gen_sync_client.py (`make generate`) generates the blocking client, ``client.py``, from this
file. Owns the connections. Never retries a call that could count twice: a submission carries an
Idempotency-Key, and what removes is not sent again once it may have arrived.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
from httpx_sse import EventSource

from troupe.bundles.archive import Bundle
from troupe.clients.rest import answers, requests
from troupe.clients.rest.models.bundles import BundleDocument, BundleList
from troupe.clients.rest.models.catalogue import TaskFamilyDocument, TaskList
from troupe.clients.rest.models.checkpoints import CheckpointDocument, CheckpointList
from troupe.clients.rest.models.dry_runs import DryRunDocument
from troupe.clients.rest.models.episode_tree import EpisodeDocument
from troupe.clients.rest.models.episodes import EpisodePage
from troupe.clients.rest.models.events import EventDocument, EventPage
from troupe.clients.rest.models.jobs import MOST_JOBS, JobDocument, JobPage, QuotaDocument
from troupe.clients.rest.models.logs import LogFileDocument, LogList, LogPage
from troupe.clients.rest.models.metrics import MetricsDocument, StepDocument, StepPage
from troupe.clients.rest.models.progress import ProgressDocument
from troupe.clients.rest.models.replicas import (
    PolicyDocument,
    PolicyList,
    ReplicaDocument,
    ReplicaList,
)
from troupe.clients.rest.models.run_folders import ImportDocument, PruneDocument, RunFolderPage
from troupe.clients.rest.models.session import SessionDocument
from troupe.clients.rest.requests import BUNDLES, DRY_RUNS, JOBS, RUN_FOLDERS, job_path
from troupe.clients.rest.retry import FOLDERS_S, LOST, PAUSE_S, WAITED_S, RetryWindow
from troupe.spec import JobSpec
from troupe.spec.dtypes import submitted

_ONCE: dict[str, Any] = {"timeout_s": FOLDERS_S, "is_repeatable": False}


class AsyncRestClient:
    """Async client of one router.

    ``timeout_s``: how long an answer may take; calls that wait, play or work on run folders have
    longer. ``retry_for_s``: how long to retry while the router does not answer (not ``delete``
    and ``prune`` once they may have arrived) or bounds the caller's requests, so that a restart of
    the router goes unnoticed. ``tls_ca``: file of the certificate authority of a router whose
    certificate is not public.
    """

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
        self._timeout_s = timeout_s
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

    async def is_up(self) -> bool:
        """True when the router answers and can take jobs.

        Raises:
            UnavailableError: its certificate is not trusted, which waiting does not fix.
        """
        try:
            return (await self._http.get("/readyz", timeout=2.0)).status_code == 200
        except httpx.HTTPError as error:
            if answers.is_distrusted(error):
                raise answers.unreachable(self._base_url, error) from error
            return False

    async def submit(
        self, spec: Mapping[str, Any] | JobSpec, *, idempotency_key: str = "", priority: int = 0
    ) -> JobDocument:
        """Submit a job; the same key never makes a second one.

        Raises:
            SpecInvalidError: the router refused the spec.
        """
        key = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        answer = await self._ask("POST", JOBS, json=spec, headers=key, priority=priority or None)
        return answers.read(JobDocument, answer)

    async def dry_run(self, spec: Mapping[str, Any] | JobSpec) -> dict[str, Any]:
        """What the router would do with ``spec`` (``PlanDocument``); nothing starts."""
        return dict(await self._ask("POST", JOBS, json=spec, dry_run=True))

    async def play_dry_run(
        self, spec: Mapping[str, Any] | JobSpec, *, num_tasks: int = 3, timeout_s: float = 480.0
    ) -> DryRunDocument:
        """Episodes of ``spec`` with scripted agents, played by an env service of the router."""
        options: dict[str, Any] = {"json": spec, "timeout_s": timeout_s, "num_tasks": num_tasks}
        return answers.read(DryRunDocument, await self._ask("POST", DRY_RUNS, **options))

    async def upload_bundle(self, bundle: Bundle) -> BundleDocument:
        """Upload code for a job whose spec names it (``troupe.bundles.with_bundle``). Idempotent.

        Raises:
            InvalidArgumentError: the router takes no bundles, or not this one.
            ForbiddenError: the key has not the scope `code`.
        """
        headers = {"Content-Type": "application/x-tar"}
        path = f"{BUNDLES}/{bundle.digest}"
        answer = await self._ask("PUT", path, content=bundle.archive, headers=headers)
        return answers.read(BundleDocument, answer)

    async def bundles(self) -> list[BundleDocument]:
        """The bundles that this key uploaded; all of them with the scope admin."""
        return answers.read(BundleList, await self._ask("GET", BUNDLES)).bundles

    async def job(self, job_id: str) -> JobDocument:
        """One job; raises NotFoundError."""
        return answers.read(JobDocument, await self._ask("GET", job_path(job_id)))

    async def jobs(self, *, limit: int = 50, states: Sequence[str] = ()) -> list[JobDocument]:
        """The latest jobs, newest first; as many pages as they take."""
        page = await self.jobs_page(limit=min(limit, MOST_JOBS), states=states)
        found = page.jobs
        while page.next_cursor and len(found) < limit:
            size = min(limit - len(found), MOST_JOBS)
            page = await self.jobs_page(limit=size, states=states, cursor=page.next_cursor)
            found += page.jobs
        return found

    async def jobs_page(
        self, *, limit: int = 50, states: Sequence[str] = (), cursor: str | None = None
    ) -> JobPage:
        """One page of jobs, newest first."""
        answer = await self._ask("GET", JOBS, limit=limit, state=states, cursor=cursor)
        return answers.read(JobPage, answer)

    async def cancel(self, job_id: str) -> JobDocument:
        """Ask the job to end; a job that has ended stays as it is."""
        return answers.read(JobDocument, await self._ask("POST", job_path(job_id, "cancel")))

    async def pause(self, job_id: str) -> JobDocument:
        """End the job's processes for now; ``resume`` continues where it stopped."""
        return answers.read(JobDocument, await self._ask("POST", job_path(job_id, "pause")))

    async def resume(
        self, job_id: str, spec: Mapping[str, Any] | JobSpec | None = None
    ) -> JobDocument:
        """Queue a paused, failed or cancelled job again, from its last checkpoint.

        ``spec`` may change steps, limits, eval and checkpoint.
        """
        answer = await self._ask("POST", job_path(job_id, "resume"), json=spec)
        return answers.read(JobDocument, answer)

    async def set_priority(self, job_id: str, priority: int) -> JobDocument:
        """Change the priority of a queued job."""
        answer = await self._ask("PATCH", job_path(job_id), json={"priority": priority})
        return answers.read(JobDocument, answer)

    async def pin(self, job_id: str, *, is_pinned: bool = True) -> JobDocument:
        """Let retention keep the job and its run folder, or not."""
        answer = await self._ask("PATCH", job_path(job_id), json={"is_pinned": is_pinned})
        return answers.read(JobDocument, answer)

    async def run_folders(self, *, limit: int = 1000, cursor: str | None = None) -> RunFolderPage:
        """Run folders by name, as their own files say."""
        answer = await self._ask("GET", RUN_FOLDERS, limit=limit, cursor=cursor)
        return answers.read(RunFolderPage, answer)

    async def import_jobs(
        self, *, dry_run: bool = False, earlier_versions: bool = False
    ) -> ImportDocument:
        """List the jobs again that Redis has lost and run folders have."""
        query: dict[str, Any] = {"dry_run": dry_run, "earlier_versions": earlier_versions}
        answer = await self._ask("POST", f"{RUN_FOLDERS}/import", timeout_s=FOLDERS_S, **query)
        return answers.read(ImportDocument, answer)

    async def prune(self, **limits: Any) -> PruneDocument:
        """Remove the oldest run folders; ``limits`` are the fields of ``PruneQuery``."""
        answer = await self._ask("DELETE", RUN_FOLDERS, **_ONCE, **limits)
        return answers.read(PruneDocument, answer)

    async def delete(self, job_id: str, *, files: bool = False) -> None:
        """Forget a job that has ended; ``files`` removes its run folder's files too."""
        await self._ask("DELETE", job_path(job_id), **_ONCE, files=files or None)

    async def progress(self, job_id: str) -> ProgressDocument:
        """Where the job is, and what it waits for."""
        return answers.read(ProgressDocument, await self._ask("GET", job_path(job_id, "progress")))

    async def metrics(
        self,
        job_id: str,
        *,
        names: Sequence[str] = (),
        from_step: int | None = None,
        max_points: int | None = None,
    ) -> MetricsDocument:
        """The job's curves."""
        query: dict[str, Any] = {"names": names, "from_step": from_step, "max_points": max_points}
        answer = await self._ask("GET", job_path(job_id, "metrics"), **query)
        return answers.read(MetricsDocument, answer)

    async def steps(self, job_id: str, *, limit: int = 50, cursor: str | None = None) -> StepPage:
        """Lines of training steps, newest first."""
        answer = await self._ask("GET", job_path(job_id, "steps"), limit=limit, cursor=cursor)
        return answers.read(StepPage, answer)

    async def step(self, job_id: str, number: int) -> StepDocument:
        """One training step."""
        answer = await self._ask("GET", job_path(job_id, "steps", str(number)))
        return answers.read(StepDocument, answer)

    async def episodes(self, job_id: str, **filters: Any) -> EpisodePage:
        """Recorded episodes; ``filters`` are the fields of ``EpisodePageQuery``."""
        answer = await self._ask("GET", job_path(job_id, "episodes"), **filters)
        return answers.read(EpisodePage, answer)

    async def episode(self, job_id: str, episode_id: str) -> EpisodeDocument:
        """One episode with its whole tree."""
        answer = await self._ask("GET", job_path(job_id, "episodes", episode_id))
        return answers.read(EpisodeDocument, answer)

    async def episode_image(self, job_id: str, digest: str) -> bytes:
        """The PNG of an image that a prompt of a recorded episode shows."""
        path = job_path(job_id, "episodes", "images", digest)
        try:
            response = await self._http.get(path)
        except httpx.TransportError as error:
            raise answers.unreachable(self._base_url, error) from error
        if response.status_code != 200:
            raise answers.problem_of(response)
        return response.content

    async def checkpoints(self, job_id: str) -> list[CheckpointDocument]:
        """What can be downloaded, newest first."""
        answer = await self._ask("GET", job_path(job_id, "checkpoints"))
        return answers.read(CheckpointList, answer).checkpoints

    async def logs(self, job_id: str) -> list[LogFileDocument]:
        """The logs of the job's processes."""
        answer = await self._ask("GET", job_path(job_id, "logs"))
        return answers.read(LogList, answer).components

    async def log(self, job_id: str, component: str, **place: Any) -> LogPage:
        """Lines of a log; ``place`` are the fields of ``LogPageQuery``."""
        answer = await self._ask("GET", job_path(job_id, "logs", component), **place)
        return answers.read(LogPage, answer)

    async def tasks(self) -> list[TaskFamilyDocument]:
        """The task families that the router knows."""
        return answers.read(TaskList, await self._ask("GET", "/v1/tasks")).tasks

    async def policies(self, job_id: str | None = None) -> list[PolicyDocument]:
        """The policies of active jobs."""
        answer = await self._ask("GET", "/v1/policies", job_id=job_id)
        return answers.read(PolicyList, answer).policies

    async def replicas(self, job_id: str | None = None) -> list[ReplicaDocument]:
        """Living replicas."""
        answer = await self._ask("GET", "/v1/replicas", job_id=job_id)
        return answers.read(ReplicaList, answer).replicas

    async def quota(self) -> QuotaDocument:
        """The limits that all jobs share, and the queue."""
        return answers.read(QuotaDocument, await self._ask("GET", "/v1/quota"))

    async def session(self) -> SessionDocument:
        """Who this client is to the router."""
        return answers.read(SessionDocument, await self._ask("GET", "/v1/session"))

    async def download(
        self, job_id: str, checkpoint: str, policy: str, target: Path, *, format: str = "peft"
    ) -> Path:
        """Write the tar archive of a checkpoint's policy to ``target``, completely or not at all.

        Raises:
            ConflictError: the checkpoint has no such format.
            InvalidArgumentError: ``target`` can't be written.
        """
        path = job_path(job_id, "checkpoints", checkpoint, policy)
        try:
            async with self._http.stream("GET", path, params={"format": format}) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise answers.problem_of(response)
                with answers.draft_of(target) as file:
                    async for chunk in response.aiter_bytes():
                        file.write(chunk)
        except httpx.TransportError as error:
            raise answers.unreachable(self._base_url, error) from error
        return target

    async def events_page(
        self, job_id: str, *, after: str = "0", limit: int = 100, wait_s: float | None = None
    ) -> EventPage:
        """Events after the place ``after`` that exist already, or occur within ``wait_s``."""
        query: dict[str, Any] = {"after": after, "limit": limit, "wait_s": wait_s}
        return answers.read(EventPage, await self._ask("GET", job_path(job_id, "events"), **query))

    async def events(self, job_id: str, *, after: str = "0") -> AsyncIterator[EventDocument]:
        """Events after the place ``after`` as they happen, until the job ends.

        Reconnects after a lost connection and continues where it broke, for ``retry_for_s``.
        """
        place, window = after, RetryWindow(self._base_url, self._retry_for_s)
        is_over = is_told = False
        while True:
            before = place
            try:
                async for event in self._stream(job_id, place):
                    place, is_told = event.id or place, event.tells_end
                    window.restore()
                    yield event
            except LOST as error:
                await asyncio.sleep(window.lose(error))
                continue
            # A router that goes down ends the stream too: what came after is still to be read.
            is_last = is_told or (is_over and place == before)
            is_over = (await self.job(job_id)).is_over
            if is_over and is_last:
                return
            if not is_over:
                await asyncio.sleep(PAUSE_S)

    async def _stream(self, job_id: str, after: str) -> AsyncIterator[EventDocument]:
        async with self._http.stream(**requests.events_stream(job_id, after)) as response:
            if response.status_code != 200:
                await response.aread()
                raise answers.problem_of(response)
            async for event in EventSource(response).aiter_sse():
                if event.data:
                    yield answers.event_of(event)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | JobSpec | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        is_repeatable: bool = True,
        **params: Any,
    ) -> Any:
        """The answer's JSON; a repeatable call is retried while the router does not answer."""
        window = RetryWindow(self._base_url, self._retry_for_s, is_repeatable=is_repeatable)
        query = requests.params_of(params)
        answer_s = timeout_s or self._timeout_s
        if wait_s := params.get("wait_s"):
            answer_s = max(answer_s, wait_s + WAITED_S)
        while True:
            try:
                response = await self._http.request(
                    method,
                    path,
                    params=query or None,
                    json=submitted(json) if isinstance(json, JobSpec) else json,
                    content=content,
                    headers=headers,
                    timeout=httpx.Timeout(self._timeout_s, read=answer_s),
                )
                return answers.document_of(response, self._base_url)
            except (*LOST, httpx.HTTPError, httpx.InvalidURL) as error:
                await asyncio.sleep(window.lose(error))
