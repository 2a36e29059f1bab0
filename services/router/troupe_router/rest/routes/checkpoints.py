"""Routes of checkpoints: what can be downloaded, and the archives."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse

from troupe.clients.rest.models.checkpoints import CheckpointFormat, CheckpointList
from troupe_router.rest.openapi import EVERY, problems
from troupe_router.rest.parts import JobId, Parts
from troupe_router.rest.strict_route import StrictRoute
from troupe_router.run.checkpoints import archive, checkpoint_list

routes = APIRouter(
    prefix="/v1/jobs/{job_id}/checkpoints",
    tags=["runs"],
    route_class=StrictRoute,
    responses={**EVERY, **problems(404)},
)
_TAR = "application/x-tar"


@routes.get("")
async def checkpoints(parts: Parts, job_id: JobId) -> CheckpointList:
    """What can be downloaded."""
    job = await parts.store.get(job_id)
    return await asyncio.to_thread(checkpoint_list, job.run_dir, job.spec)


@routes.get(
    "/{checkpoint}/{policy}",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A tar archive",
            "content": {_TAR: {"schema": {"type": "string", "format": "binary"}}},
        },
        **problems(409),
    },
)
async def download(
    parts: Parts,
    job_id: JobId,
    checkpoint: Annotated[str, Path(max_length=100, examples=["final"])],
    policy: Annotated[str, Path(max_length=100, examples=["shared"])],
    format: CheckpointFormat = "peft",
) -> StreamingResponse:
    """Download a policy as PEFT adapter, merged model or trainer state."""
    job = await parts.store.get(job_id)
    packed = await asyncio.to_thread(archive, job.run_dir, job.spec, checkpoint, policy, format)
    headers = {
        "Content-Length": str(packed.size_bytes),
        "Content-Disposition": f'attachment; filename="{packed.name}.tar"',
        "X-Content-Type-Options": "nosniff",
    }
    chunks = iterate_in_threadpool(packed.chunks())
    return StreamingResponse(chunks, headers=headers, media_type=_TAR)
