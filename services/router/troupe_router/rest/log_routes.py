"""Routes of logs: which there are, and their lines as JSON or as text."""

import asyncio
import time
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import PlainTextResponse, Response

from troupe.clients.rest import runs as r
from troupe_router.jobs.store import JobStore
from troupe_router.rest.bodies import answer
from troupe_router.rest.openapi import JobId, Responses, shows
from troupe_router.rest.route import Route, routed
from troupe_router.run.logs import log_after, log_list, log_tail

_LOOK_S = 0.25


class LogRoutes:
    """Logs of one job's processes."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def logs(self, request: Request, job_id: JobId) -> Response:
        job = await self._store.get(job_id)
        return answer(request, await asyncio.to_thread(log_list, job.run_dir))

    async def log(
        self,
        request: Request,
        job_id: JobId,
        component: Annotated[str, Path(max_length=130, examples=["trainer-0"])],
        tail: Annotated[int, Query(ge=0, le=10_000)] = 200,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        wait_s: Annotated[float, Query(ge=0.0, le=30.0)] = 0.0,
    ) -> Response:
        run_dir = (await self._store.get(job_id)).run_dir
        if after is None:
            page = await asyncio.to_thread(log_tail, run_dir, component, tail)
        else:
            page = await _await_lines(run_dir, component, after, limit, wait_s)
        if request.headers.get("accept", "").startswith("text/plain"):
            return PlainTextResponse("".join(f"{line}\n" for line in page["lines"]))
        return answer(request, page)


def log_routes(store: JobStore) -> APIRouter:
    """Routes under /v1/jobs/{job_id}/logs."""
    own = LogRoutes(store)
    lines = "Lines of a log: the tail, or after a place"
    return routed(
        "/v1/jobs/{job_id}/logs",
        "runs",
        Route("", own.logs, "Logs of the job's processes", shows(r.LogList)),
        Route("/{component}", own.log, lines, _json_or_text()),
    )


def _json_or_text() -> Responses:
    found = shows(r.LogPage)
    found[200]["content"]["text/plain"] = {"schema": {"type": "string"}}
    return found


async def _await_lines(
    run_dir: FilePath, component: str, after: int, limit: int, wait_s: float
) -> dict[str, Any]:
    """A page of lines; waits up to ``wait_s`` for the first one."""
    deadline = time.monotonic() + wait_s
    while True:
        page = await asyncio.to_thread(log_after, run_dir, component, after, limit)
        if page["lines"] or time.monotonic() >= deadline:
            return page
        await asyncio.sleep(_LOOK_S)
