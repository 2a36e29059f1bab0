"""Routes of logs: which there are, and their lines as JSON or as text."""

import asyncio
import time
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import PlainTextResponse

from troupe.clients.rest.models.logs import LogList, LogPage, LogPageQuery
from troupe_router.rest.openapi import EVERY, problems, text_or
from troupe_router.rest.parts import CountedAs, JobId, Parts
from troupe_router.rest.strict_route import StrictRoute
from troupe_router.run.logs import log_after, log_list, log_tail

routes = APIRouter(
    prefix="/v1/jobs/{job_id}/logs",
    tags=["runs"],
    route_class=StrictRoute,
    responses={**EVERY, **problems(404)},
)
Component = Annotated[str, Path(max_length=130, examples=["trainer-0"])]
_LOOK_S = 0.25


@routes.get("")
async def logs(parts: Parts, job_id: JobId) -> LogList:
    """Logs of the job's processes."""
    job = await parts.store.get(job_id)
    return await asyncio.to_thread(log_list, job.run_dir)


@routes.get("/{component}", response_model=LogPage, responses=text_or("text/plain"))
async def log(
    request: Request,
    parts: Parts,
    counted_as: CountedAs,
    job_id: JobId,
    component: Component,
    query: Annotated[LogPageQuery, Query()],
) -> LogPage | PlainTextResponse:
    """Lines of a log: the tail, or after a place."""
    run_dir = (await parts.store.get(job_id)).run_dir
    if query.after is None:
        page = await asyncio.to_thread(log_tail, run_dir, component, query.tail)
    elif query.wait_s:
        with parts.fanout.waiting(counted_as):
            page = await _await_lines(run_dir, component, query.after, query)
    else:
        page = await asyncio.to_thread(log_after, run_dir, component, query.after, query.limit)
    if request.headers.get("accept", "").startswith("text/plain"):
        return PlainTextResponse("".join(f"{line}\n" for line in page.lines))
    return page


async def _await_lines(
    run_dir: FilePath, component: str, after: int, query: LogPageQuery
) -> LogPage:
    """A page of lines; waits up to ``query.wait_s`` for the first one."""
    deadline = time.monotonic() + query.wait_s
    while True:
        page = await asyncio.to_thread(log_after, run_dir, component, after, query.limit)
        if page.lines or time.monotonic() >= deadline:
            return page
        await asyncio.sleep(_LOOK_S)
