"""Routes that make, show and steer jobs: HTTP to job commands and store, and nothing else."""

import asyncio
import base64
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from troupe.clients.rest.models.jobs import (
    SPEC_EXAMPLE,
    JobChange,
    JobDocument,
    JobPage,
    JobPageQuery,
    PlanDocument,
    SubmitQuery,
)
from troupe.errors import ForbiddenError, InvalidArgumentError
from troupe.runtime.telemetry.tracing import job_span
from troupe.spec import JobSpec
from troupe_router.jobs.queue import places
from troupe_router.jobs.record import JobRecord, spec_document
from troupe_router.jobs.submit import parse_body
from troupe_router.rest.access.api_keys import Caller
from troupe_router.rest.bodies import read_body, read_model
from troupe_router.rest.openapi import EVERY, OF_BODIES, problems, takes
from troupe_router.rest.parts import JobId, Parts, RestParts, WhoAsks
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute, responses=EVERY)
SPEC_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": JobSpec.model_json_schema(), "example": SPEC_EXAMPLE},
        "application/yaml": {"schema": {"type": "string"}},
    },
}
_SUBMITTED: dict[str, Any] = {
    "description": "A plan, or a job that was there",
    "model": JobDocument | PlanDocument,
}


@routes.post(
    "",
    status_code=201,
    response_model=JobDocument,
    responses={200: _SUBMITTED, **problems(404, 409, *OF_BODIES)},
    openapi_extra={"requestBody": SPEC_BODY},
)
async def submit(
    request: Request,
    response: Response,
    parts: Parts,
    caller: WhoAsks,
    query: Annotated[SubmitQuery, Query()],
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobDocument | Response:
    """Submit a job (or plan it, or resume one).

    `dry_run=true` checks the spec and answers with a plan and an estimate (200); nothing starts.
    The same `Idempotency-Key` and body give the same job (200) for 24 hours. `resume` goes with
    neither `dry_run` nor `priority`, and needs no key.
    """
    body = await read_body(request, parts.settings.max_body_bytes)
    spec = await parsed(body, request)
    if query.resume is not None:
        _check_resume(query)
        response.status_code = 200
        return await _shown(parts, await parts.commands.resume(query.resume, spec))
    check_scope(caller, spec)
    if query.dry_run:
        plan = await parts.commands.plan(spec, owner=caller.name)
        return Response(plan.model_dump_json(), media_type="application/json")
    accepted = await parts.commands.submit(
        body, spec, key=idempotency_key, owner=caller.name, priority=query.priority
    )
    record = accepted.record
    if accepted.is_new:
        job_span(record.job_id)
    else:
        response.status_code = 200
    response.headers["Location"] = f"/v1/jobs/{record.job_id}"
    return await _shown(parts, record)


@routes.get("")
async def page(parts: Parts, query: Annotated[JobPageQuery, Query()]) -> JobPage:
    """Jobs, newest first."""
    before = _decode(query.cursor) if query.cursor else None
    listed = await parts.store.page(before=before, limit=query.limit + 1, states=query.state or ())
    shown = listed[: query.limit]
    ranks = await _ranks(parts) if any(r.state == "queued" for r in shown) else {}
    return JobPage(
        jobs=[job_document(r, ranks.get(r.job_id)) for r in shown],
        next_cursor=_encode(shown[-1]) if len(listed) > query.limit else None,
    )


@routes.get("/{job_id}", responses=problems(404))
async def get(parts: Parts, job_id: JobId) -> JobDocument:
    """One job."""
    return await _shown(parts, await parts.store.get(job_id))


@routes.get("/{job_id}/spec", responses=problems(404))
async def spec(parts: Parts, job_id: JobId) -> JobSpec:
    """The job's spec."""
    return (await parts.store.get(job_id)).spec


@routes.post("/{job_id}/cancel", responses=problems(404, 409))
async def cancel(parts: Parts, job_id: JobId) -> JobDocument:
    """End a job."""
    return await _shown(parts, await parts.commands.cancel(job_id))


@routes.post("/{job_id}/pause", responses=problems(404, 409))
async def pause(parts: Parts, job_id: JobId) -> JobDocument:
    """Stop a job for now."""
    return await _shown(parts, await parts.commands.pause(job_id))


@routes.post(
    "/{job_id}/resume",
    responses=problems(404, 409, *OF_BODIES),
    openapi_extra={"requestBody": {**SPEC_BODY, "required": False}},
)
async def resume(request: Request, parts: Parts, job_id: JobId) -> JobDocument:
    """Go on from the last checkpoint.

    The body may be the job's spec with other steps, limits, eval or checkpoint.
    """
    body = await read_body(request, parts.settings.max_body_bytes)
    wanted = await parsed(body, request) if body.strip() else None
    return await _shown(parts, await parts.commands.resume(job_id, wanted))


@routes.patch("/{job_id}", responses=problems(404, 409, *OF_BODIES), openapi_extra=takes(JobChange))
async def change(request: Request, parts: Parts, job_id: JobId) -> JobDocument:
    """Change the priority of a job that waits, or pin a job."""
    wanted = await read_model(request, JobChange, parts.settings.max_body_bytes)
    record = await parts.store.get(job_id)
    if wanted.priority is not None:
        record = await parts.store.set_priority(job_id, wanted.priority)
    if wanted.is_pinned is not None:
        record = await parts.store.set_pinned(job_id, wanted.is_pinned)
    return await _shown(parts, record)


@routes.delete("/{job_id}", status_code=204, responses=problems(404, 409))
async def delete(parts: Parts, job_id: JobId, files: bool = False) -> None:
    """Forget a job that has ended or is paused."""
    await parts.commands.delete(job_id, files=files)


def check_scope(caller: Caller, spec: JobSpec) -> None:
    """Raise ForbiddenError for a bundle in the job of a caller who may bring none.

    A resumed job has the bundle that it was submitted with, so whoever resumes it brings none.
    """
    if spec.bundle is not None and "code" not in caller.scopes:
        raise ForbiddenError(
            f"the key '{caller.name}' may {', '.join(caller.scopes)}; a job with a bundle needs "
            "'code'",
            pointer="/bundle",
        )


def _check_resume(query: SubmitQuery) -> None:
    """Raise InvalidArgumentError for a parameter that no resume takes."""
    if query.dry_run:
        raise InvalidArgumentError(
            "a resume can't be planned; leave out dry_run to resume the job, or resume to plan a "
            "new one",
            pointer="/query/dry_run",
        )
    if "priority" in query.model_fields_set:
        raise InvalidArgumentError(
            f"a resumed job keeps its priority; leave it out, and PATCH /v1/jobs/{query.resume} "
            "once it is queued",
            pointer="/query/priority",
        )


def job_document(record: JobRecord, queue_position: int | None) -> JobDocument:
    """What REST shows of a job."""
    return JobDocument(
        job_id=record.job_id,
        name=record.spec.name,
        state=record.state,
        reason=record.reason,
        error=record.reason if record.state == "failed" else None,
        created_at=record.created_at,
        started_at=record.started_at or None,
        ended_at=record.ended_at or None,
        run_dir=str(record.run_dir),
        life=record.life,
        step=record.step,
        steps=record.spec.steps,
        priority=record.priority,
        owner=record.owner,
        is_pinned=record.is_pinned,
        replicas=record.replicas,
        queue_position=queue_position,
        spec=spec_document(record.spec),
    )


async def _shown(parts: RestParts, record: JobRecord) -> JobDocument:
    ranks = await _ranks(parts) if record.state == "queued" else {}
    return job_document(record, ranks.get(record.job_id))


async def _ranks(parts: RestParts) -> dict[str, int]:
    """Places in the queue, from 1."""
    queue = places(await parts.store.unfinished(), parts.commands.quota)
    return {place.job.job_id: number for number, place in enumerate(queue, 1)}


async def parsed(body: bytes, request: Request) -> JobSpec:
    """In a thread: a megabyte of JSON takes a second, and the loop serves every other caller."""
    media_type = request.headers.get("content-type", "application/json").lower()
    return await asyncio.to_thread(parse_body, body, media_type=media_type)


def _encode(last: JobRecord) -> str:
    return base64.urlsafe_b64encode(f"{last.created_at!r} {last.job_id}".encode()).decode()


def _decode(cursor: str) -> tuple[float, str]:
    try:
        # Without an id, as an earlier version wrote it, no job of the instant comes after it.
        instant, _, job_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        if not 0 < float(instant) < 2**53:
            raise ValueError("it holds no position")
        return float(instant), job_id
    except ValueError as error:
        raise InvalidArgumentError(
            f"the cursor {cursor[:80]!r} is not one of this list; give next_cursor of a page, or "
            "none to start again",
            pointer="/query/cursor",
        ) from error
