"""Routes of checkpoints: what can be downloaded, and the archives."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response, StreamingResponse

from troupe.clients.rest import runs as r
from troupe_router.jobs.store import JobStore
from troupe_router.rest.bodies import answer
from troupe_router.rest.openapi import JobId, gives, shows
from troupe_router.rest.route import Route, routed
from troupe_router.run.checkpoints import archive, checkpoint_list


class DownloadRoutes:
    """Checkpoints of one job."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def checkpoints(self, request: Request, job_id: JobId) -> Response:
        job = await self._store.get(job_id)
        found = await asyncio.to_thread(checkpoint_list, job.run_dir, job.spec, job.step)
        return answer(request, found)

    async def download(
        self,
        job_id: JobId,
        checkpoint: Annotated[str, Path(max_length=100, examples=["final"])],
        policy: Annotated[str, Path(max_length=100, examples=["shared"])],
        format: Literal["peft", "merged", "state"] = "peft",
    ) -> Response:
        job = await self._store.get(job_id)
        found = await asyncio.to_thread(archive, job.run_dir, job.spec, checkpoint, policy, format)
        headers = {
            "Content-Length": str(found.size_bytes),
            "Content-Disposition": f'attachment; filename="{found.name}.tar"',
            "X-Content-Type-Options": "nosniff",
        }
        chunks = iterate_in_threadpool(found.chunks())
        return StreamingResponse(chunks, headers=headers, media_type="application/x-tar")


def download_routes(store: JobStore) -> APIRouter:
    """Routes under /v1/jobs/{job_id}/checkpoints."""
    own = DownloadRoutes(store)
    return routed(
        "/v1/jobs/{job_id}/checkpoints",
        "runs",
        Route("", own.checkpoints, "What can be downloaded", shows(r.CheckpointList)),
        Route(
            "/{checkpoint}/{policy}",
            own.download,
            "Download a policy as PEFT adapter, merged model or trainer state",
            gives("application/x-tar", "A tar archive"),
            (404, 409, 422),
            response=StreamingResponse,
        ),
    )
