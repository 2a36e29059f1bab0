"""Job routes: HTTP to desk and store, and nothing else."""

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from redis.asyncio import Redis
from sse_starlette.sse import EventSourceResponse
from starlette.responses import JSONResponse, Response

from services.router.jobs.desk import Accepted, Desk
from services.router.jobs.store import JobStore
from services.router.rest.bodies import read_body
from services.router.rest.events import events_page, events_stream
from services.router.rest.problems import MEDIA_TYPE
from troupe.spec import JobSpec

_PROBLEM: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": {"type": "object"}}}}
_FAULTS: dict[int | str, dict[str, Any]] = {
    404: {"description": "No such job", **_PROBLEM},
    409: {"description": "The job's state or an earlier request forbids it", **_PROBLEM},
    413: {"description": "The body is too large", **_PROBLEM},
    422: {"description": "The spec cannot run; `errors` has a pointer for each fault", **_PROBLEM},
}
_SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": JobSpec.model_json_schema()}},
    }
}


def job_routes(redis: Redis, store: JobStore, desk: Desk, max_body_bytes: int) -> APIRouter:
    """Routes under /v1/jobs."""
    routes = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=_FAULTS)

    async def submit(
        request: Request,
        dry_run: bool = False,
        resume: str | None = None,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        body = await read_body(request, max_body_bytes)
        if dry_run:
            return JSONResponse(await desk.plan(body))
        if resume is not None:
            return JSONResponse((await desk.resume(resume, body)).to_json())
        return _accepted(await desk.submit(body, key=idempotency_key))

    async def list_jobs(
        limit: Annotated[int, Query(ge=1, le=1000)] = 50, cursor: str | None = None
    ) -> dict[str, Any]:
        found = list(reversed(await store.all()))
        ids = [record.job_id for record in found]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        page = found[start : start + limit]
        has_more = start + limit < len(found)
        return {
            "jobs": [record.to_json() for record in page],
            "next_cursor": page[-1].job_id if has_more and page else None,
        }

    async def get_job(job_id: str) -> dict[str, Any]:
        return (await store.get(job_id)).to_json()

    async def cancel(job_id: str) -> dict[str, Any]:
        return (await desk.cancel(job_id)).to_json()

    async def resume_job(request: Request, job_id: str) -> dict[str, Any]:
        return (await desk.resume(job_id, await read_body(request, max_body_bytes))).to_json()

    async def events(
        request: Request,
        job_id: str,
        after: str = "0",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        wait_s: Annotated[float, Query(ge=0.0, le=30.0)] = 0.0,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        await store.get(job_id)
        if "text/event-stream" in request.headers.get("accept", ""):
            place = last_event_id or after
            await events_page(redis, job_id, place, limit=1, wait_s=0.0)
            return EventSourceResponse(events_stream(redis, store, job_id, place), ping=10)
        return JSONResponse(await events_page(redis, job_id, after, limit=limit, wait_s=wait_s))

    async def metrics(job_id: str) -> dict[str, Any]:
        path = (await store.get(job_id)).run_dir / "metrics.jsonl"

        def read() -> list[Any]:
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

        return {"metrics": await asyncio.to_thread(read)}

    add = routes.add_api_route
    add(
        "",
        submit,
        methods=["POST"],
        status_code=201,
        summary="Submit a job (or plan it, or resume one)",
        openapi_extra=_SPEC_BODY,
    )
    add("", list_jobs, summary="Jobs, newest first")
    add("/{job_id}", get_job, summary="One job")
    add("/{job_id}/cancel", cancel, methods=["POST"], summary="End a job")
    add("/{job_id}/resume", resume_job, methods=["POST"], summary="Go on from the last checkpoint")
    add("/{job_id}/events", events, summary="What happened: a page, or a stream (SSE)")
    add("/{job_id}/metrics", metrics, summary="The lines of metrics.jsonl")
    return routes


def _accepted(accepted: Accepted) -> JSONResponse:
    record = accepted.record
    return JSONResponse(
        record.to_json(),
        status_code=201 if accepted.is_new else 200,
        headers={"Location": f"/v1/jobs/{record.job_id}"},
    )
