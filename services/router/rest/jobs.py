"""Job routes: HTTP to desk and store, and nothing else."""

import base64
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from services.router.jobs.desk import Accepted, Desk, parse_body
from services.router.jobs.queue import places
from services.router.jobs.record import JobRecord
from services.router.jobs.store import JobStore
from services.router.rest.bodies import answer, read_body, read_model
from services.router.rest.docs import JOB, SPEC, JobId, faults, shows, takes
from services.router.rest.gate import CALLER
from services.router.rest.keyring import Caller
from troupe.clients.rest.models import Job, JobChange, JobPage, JobState, Plan
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec

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


def job_routes(store: JobStore, desk: Desk, max_body_bytes: int) -> APIRouter:
    """Routes under /v1/jobs that make, show and steer jobs."""
    routes = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    async def show(record: JobRecord) -> dict[str, Any]:
        position = None
        if record.state == "queued":
            queue = [p.job.job_id for p in places(await store.unfinished(), desk.quota)]
            position = queue.index(record.job_id) + 1 if record.job_id in queue else None
        return record.to_json(queue_position=position)

    async def submit(
        request: Request,
        dry_run: bool = False,
        resume: Annotated[str | None, Query(max_length=100)] = None,
        priority: Annotated[int, Query(ge=-100, le=100)] = 0,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        body = await read_body(request, max_body_bytes)
        spec = parse_body(body, media_type=_media_type(request))
        owner = _caller(request).name
        if dry_run:
            return answer(request, await desk.plan(spec, owner=owner))
        if resume is not None:
            return answer(request, await show(await desk.resume(resume, spec)))
        accepted = await desk.submit(
            body, spec, key=idempotency_key, owner=owner, priority=priority
        )
        return _accepted(await show(accepted.record), accepted)

    async def list_jobs(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(max_length=200)] = None,
        state: Annotated[list[JobState] | None, Query()] = None,
    ) -> Response:
        before = _decode(cursor) if cursor else None
        found = await store.page(before=before, limit=limit + 1, states=state or ())
        page = found[:limit]
        queue = [p.job.job_id for p in places(await store.unfinished(), desk.quota)]
        rank = {job_id: number for number, job_id in enumerate(queue, 1)}
        more = len(found) > limit
        document = {
            "jobs": [r.to_json(queue_position=rank.get(r.job_id)) for r in page],
            "next_cursor": _encode(page[-1].created_at) if more else None,
        }
        return answer(request, document)

    async def get_job(request: Request, job_id: JobId) -> Response:
        return answer(request, await show(await store.get(job_id)))

    async def change(request: Request, job_id: JobId) -> Response:
        wanted = await read_model(request, JobChange, max_body_bytes)
        return answer(request, await show(await store.set_priority(job_id, wanted.priority)))

    async def delete(job_id: JobId, files: bool = False) -> Response:
        await desk.delete(job_id, files=files)
        return Response(status_code=204)

    async def cancel(request: Request, job_id: JobId) -> Response:
        return answer(request, await show(await desk.cancel(job_id)))

    async def pause(request: Request, job_id: JobId) -> Response:
        return answer(request, await show(await desk.pause(job_id)))

    async def resume_job(request: Request, job_id: JobId) -> Response:
        body = await read_body(request, max_body_bytes)
        spec = parse_body(body, media_type=_media_type(request)) if body.strip() else None
        return answer(request, await show(await desk.resume(job_id, spec)))

    async def get_spec(request: Request, job_id: JobId) -> Response:
        return answer(request, (await store.get(job_id)).to_json()["spec"])

    shown = {**shows(Job, JOB)}
    add = routes.add_api_route
    add(
        "",
        submit,
        methods=["POST"],
        status_code=201,
        summary="Submit a job (or plan it, or resume one)",
        description=(
            "`dry_run=true` checks the spec and answers with a plan and an estimate (200); nothing "
            "starts. The same `Idempotency-Key` and body give the same job (200) for 24 hours."
        ),
        openapi_extra=_SPEC_BODY,
        response_class=Response,
        responses={
            **shows(Job, JOB, status=201),
            200: {"description": "A plan, or a job that was there", "model": Job | Plan},
            **faults(404, 409, 413, 422),
        },
    )
    add(
        "",
        list_jobs,
        summary="Jobs, newest first",
        response_class=Response,
        responses={**shows(JobPage, {"jobs": [JOB], "next_cursor": None}), **faults(422)},
    )
    for path, endpoint, method, summary, codes in (
        ("/{job_id}", get_job, "GET", "One job", (404, 422)),
        ("/{job_id}/cancel", cancel, "POST", "End a job", (404, 409, 422)),
        ("/{job_id}/pause", pause, "POST", "Stop a job for now", (404, 409, 422)),
    ):
        add(
            path,
            endpoint,
            methods=[method],
            summary=summary,
            response_class=Response,
            responses={**shown, **faults(*codes)},
        )
    add(
        "/{job_id}",
        change,
        methods=["PATCH"],
        summary="Change the priority of a job that waits",
        openapi_extra=takes(JobChange),
        response_class=Response,
        responses={**shown, **faults(404, 409, 413, 422)},
    )
    add(
        "/{job_id}",
        delete,
        methods=["DELETE"],
        status_code=204,
        summary="Forget a job that has ended or is paused",
        response_class=Response,
        responses=faults(404, 409, 422),
    )
    add(
        "/{job_id}/resume",
        resume_job,
        methods=["POST"],
        summary="Go on from the last checkpoint",
        description="The body may be the job's spec with other steps, limits, eval or checkpoint.",
        openapi_extra=_OPTIONAL_SPEC,
        response_class=Response,
        responses={**shown, **faults(404, 409, 413, 422)},
    )
    add(
        "/{job_id}/spec",
        get_spec,
        summary="The job's spec",
        response_class=Response,
        responses={**shows(JobSpec, SPEC), **faults(404, 422)},
    )
    return routes


def _caller(request: Request) -> Caller:
    return request.scope[CALLER]


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
