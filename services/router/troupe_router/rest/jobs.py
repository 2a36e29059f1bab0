"""Job routes: HTTP to job commands and store, and nothing else."""

import asyncio
import base64
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from troupe.clients.rest.models import Job, JobChange, JobPage, JobState, Plan
from troupe.errors import InvalidArgumentError
from troupe.runtime.telemetry.tracing import job_span
from troupe.spec import JobSpec
from troupe_router.jobs.queue import places
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import Accepted, JobCommands, parse_body
from troupe_router.rest.access import CALLER
from troupe_router.rest.api_keys import Caller
from troupe_router.rest.bodies import answer, read_body, read_model
from troupe_router.rest.openapi import JOB, SPEC, JobId, shows, takes
from troupe_router.rest.route import Route, routed

_SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": JobSpec.model_json_schema(), "example": SPEC},
            "application/yaml": {"schema": {"type": "string"}},
        },
    }
}
_OPTIONAL_SPEC: dict[str, Any] = {"requestBody": {**_SPEC_BODY["requestBody"], "required": False}}
_ABOUT_SUBMIT = (
    "`dry_run=true` checks the spec and answers with a plan and an estimate (200); nothing "
    "starts. The same `Idempotency-Key` and body give the same job (200) for 24 hours."
)
_ABOUT_RESUME = "The body may be the job's spec with other steps, limits, eval or checkpoint."


class JobRoutes:
    """What makes, shows and steers jobs."""

    def __init__(self, store: JobStore, commands: JobCommands, max_body_bytes: int) -> None:
        self._store = store
        self._commands = commands
        self._max_body_bytes = max_body_bytes

    async def submit(
        self,
        request: Request,
        dry_run: bool = False,
        resume: Annotated[str | None, Query(max_length=100)] = None,
        priority: Annotated[int, Query(ge=-100, le=100)] = 0,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        body = await read_body(request, self._max_body_bytes)
        spec = await _parsed(body, request)
        owner = _caller(request).name
        if dry_run:
            return answer(request, await self._commands.plan(spec, owner=owner))
        if resume is not None:
            return answer(request, await self._show(await self._commands.resume(resume, spec)))
        accepted = await self._commands.submit(
            body, spec, key=idempotency_key, owner=owner, priority=priority
        )
        if accepted.is_new:
            job_span(accepted.record.job_id)
        return _accepted(await self._show(accepted.record), accepted)

    async def page(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(max_length=200)] = None,
        state: Annotated[list[JobState] | None, Query()] = None,
    ) -> Response:
        before = _decode(cursor) if cursor else None
        found = await self._store.page(before=before, limit=limit + 1, states=state or ())
        page = found[:limit]
        rank = await self._ranks() if any(r.state == "queued" for r in page) else {}
        more = len(found) > limit
        document = {
            "jobs": [r.to_json(queue_position=rank.get(r.job_id)) for r in page],
            "next_cursor": _encode(page[-1].created_at) if more else None,
        }
        return answer(request, document)

    async def get(self, request: Request, job_id: JobId) -> Response:
        return answer(request, await self._show(await self._store.get(job_id)))

    async def spec(self, request: Request, job_id: JobId) -> Response:
        return answer(request, (await self._store.get(job_id)).to_json()["spec"])

    async def change(self, request: Request, job_id: JobId) -> Response:
        wanted = await read_model(request, JobChange, self._max_body_bytes)
        changed = await self._store.set_priority(job_id, wanted.priority)
        return answer(request, await self._show(changed))

    async def delete(self, job_id: JobId, files: bool = False) -> Response:
        await self._commands.delete(job_id, files=files)
        return Response(status_code=204)

    async def cancel(self, request: Request, job_id: JobId) -> Response:
        return answer(request, await self._show(await self._commands.cancel(job_id)))

    async def pause(self, request: Request, job_id: JobId) -> Response:
        return answer(request, await self._show(await self._commands.pause(job_id)))

    async def resume(self, request: Request, job_id: JobId) -> Response:
        body = await read_body(request, self._max_body_bytes)
        spec = await _parsed(body, request) if body.strip() else None
        return answer(request, await self._show(await self._commands.resume(job_id, spec)))

    async def _show(self, record: JobRecord) -> dict[str, Any]:
        ranks = await self._ranks() if record.state == "queued" else {}
        return record.to_json(queue_position=ranks.get(record.job_id))

    async def _ranks(self) -> dict[str, int]:
        """Places in the queue, from 1."""
        queue = places(await self._store.unfinished(), self._commands.quota)
        return {place.job.job_id: number for number, place in enumerate(queue, 1)}


def job_routes(store: JobStore, commands: JobCommands, max_body_bytes: int) -> APIRouter:
    """Routes under /v1/jobs that make, show and steer jobs."""
    own = JobRoutes(store, commands, max_body_bytes)
    return routed("/v1/jobs", "jobs", *_making(own), *_showing(own), *_steering(own))


def _making(own: JobRoutes) -> tuple[Route, ...]:
    made = {
        **shows(Job, JOB, status=201),
        200: {"description": "A plan, or a job that was there", "model": Job | Plan},
    }
    submit = Route(
        "",
        own.submit,
        "Submit a job (or plan it, or resume one)",
        made,
        (404, 409, 413, 422),
        method="POST",
        status=201,
        description=_ABOUT_SUBMIT,
        body=_SPEC_BODY,
    )
    return (submit,)


def _showing(own: JobRoutes) -> tuple[Route, ...]:
    page = shows(JobPage, {"jobs": [JOB], "next_cursor": None})
    return (
        Route("", own.page, "Jobs, newest first", page, (422,)),
        Route("/{job_id}", own.get, "One job", shows(Job, JOB)),
        Route("/{job_id}/spec", own.spec, "The job's spec", shows(JobSpec, SPEC)),
    )


def _steering(own: JobRoutes) -> tuple[Route, ...]:
    job = shows(Job, JOB)
    plain, with_body = (404, 409, 422), (404, 409, 413, 422)
    return (
        Route("/{job_id}/cancel", own.cancel, "End a job", job, plain, method="POST"),
        Route("/{job_id}/pause", own.pause, "Stop a job for now", job, plain, method="POST"),
        Route(
            "/{job_id}/resume",
            own.resume,
            "Go on from the last checkpoint",
            job,
            with_body,
            method="POST",
            description=_ABOUT_RESUME,
            body=_OPTIONAL_SPEC,
        ),
        Route(
            "/{job_id}",
            own.change,
            "Change the priority of a job that waits",
            job,
            with_body,
            method="PATCH",
            body=takes(JobChange),
        ),
        Route(
            "/{job_id}",
            own.delete,
            "Forget a job that has ended or is paused",
            {},
            plain,
            method="DELETE",
            status=204,
        ),
    )


def _caller(request: Request) -> Caller:
    return request.scope[CALLER]


async def _parsed(body: bytes, request: Request) -> JobSpec:
    """In a thread: a megabyte of JSON takes a second, and the loop serves every other caller."""
    return await asyncio.to_thread(parse_body, body, media_type=_media_type(request))


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "application/json").lower()


def _accepted(document: dict[str, Any], accepted: Accepted) -> Response:
    return Response(
        json.dumps(document),
        media_type="application/json",
        status_code=201 if accepted.is_new else 200,
        headers={"Location": f"/v1/jobs/{accepted.record.job_id}"},
    )


def _encode(created_at: float) -> str:
    return base64.urlsafe_b64encode(repr(created_at).encode()).decode()


def _decode(cursor: str) -> float:
    try:
        value = float(base64.urlsafe_b64decode(cursor.encode()))
        if not 0 < value < 2**53:
            raise ValueError("it names no place")
        return value
    except ValueError as error:
        raise InvalidArgumentError(
            f"the cursor {cursor[:80]!r} is not one of this list; give next_cursor of a page, or "
            "none to begin anew",
            pointer="/query/cursor",
        ) from error
