"""Routes of a job's run: progress, curves, steps, checkpoints and logs."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from redis.asyncio import Redis
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from services.router.jobs.episode_pages import step_counts
from services.router.jobs.record import JobRecord
from services.router.jobs.store import JobStore
from services.router.rest.artifacts import archive, checkpoint_list
from services.router.rest.bodies import answer
from services.router.rest.docs import METRICS, JobId, faults, gives, shows
from services.router.rest.logs import log_after, log_list, log_tail
from services.router.rest.series import MetricLines, metrics_document
from services.router.waiting import Lookout
from troupe.api.records.v1 import records_pb2 as pb
from troupe.clients.rest import models as m
from troupe.clients.rest import runs as r
from troupe.errors import InvalidArgumentError
from troupe.ids import eval_round, train_round
from troupe.streams.ledger import RoundState, StepLedger

_LAST_STEPS = 10
_LOG_LOOK_S = 0.25
_MAX_STEP = 10**9


def run_routes(redis: Redis, store: JobStore, lookout: Lookout, lines: MetricLines) -> APIRouter:
    """Routes under /v1/jobs/{job_id} that show a run."""
    routes = APIRouter(prefix="/v1/jobs/{job_id}", tags=["runs"])

    async def read_lines(job: JobRecord) -> list[Mapping[str, Any]]:
        return list(await asyncio.to_thread(lines.read, job.run_dir))

    async def progress(request: Request, job_id: JobId) -> Response:
        job = await store.get(job_id)
        waiting = await lookout.look(job)
        ledger = StepLedger(redis, job_id)
        state = await _round(ledger, job.step)
        pace_s = _pace(await read_lines(job))
        left = max(0, job.spec.steps - job.step)
        document = {
            "job_id": job_id,
            "state": job.state,
            "step": job.step,
            "steps": job.spec.steps,
            "waiting": waiting.to_json(),
            "round": _round_document(state),
            "versions": await ledger.versions(),
            "seconds_per_step": pace_s,
            "eta_s": None if pace_s is None or job.is_finished else round(pace_s * left, 1),
        }
        return answer(request, document)

    async def metrics(
        request: Request,
        job_id: JobId,
        names: Annotated[list[str] | None, Query(max_length=200)] = None,
        from_step: Annotated[int, Query(ge=0, le=_MAX_STEP)] = 0,
        max_points: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> Response:
        job = await store.get(job_id)
        found = await asyncio.to_thread(lines.points, job.run_dir)
        document = metrics_document(
            job_id, found, names=names or (), from_step=from_step, max_points=max_points
        )
        return answer(request, document)

    async def steps(
        request: Request,
        job_id: JobId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(max_length=20)] = None,
    ) -> Response:
        found = [x for x in await read_lines(await store.get(job_id)) if x["kind"] == "train"]
        found.sort(key=lambda line: -int(line["step"]))
        below = _step_cursor(cursor)
        left = [line for line in found if below is None or line["step"] < below]
        page = left[:limit]
        after = str(page[-1]["step"]) if len(left) > limit else None
        return answer(request, {"steps": page, "next_cursor": after})

    async def step(
        request: Request, job_id: JobId, number: Annotated[int, Path(ge=0, le=_MAX_STEP)]
    ) -> Response:
        job = await store.get(job_id)
        by_kind = {x["kind"]: x for x in await read_lines(job) if x["step"] == number}
        ledger = StepLedger(redis, job_id)
        state = await _round(ledger, number)
        counts, groups = await asyncio.gather(
            asyncio.to_thread(step_counts, job.run_dir, number),
            asyncio.to_thread(_trained_groups, job.run_dir, number),
        )
        is_open = not job.is_finished and (state is not None or number == job.step)
        unwritten = "open" if is_open else "to_come"
        document = {
            "step": number,
            "state": "recorded" if "train" in by_kind else unwritten,
            "train": by_kind.get("train"),
            "eval": by_kind.get("eval"),
            "round": _round_document(state),
            "trained_groups": groups,
            "episodes": counts,
        }
        return answer(request, document)

    async def checkpoints(request: Request, job_id: JobId) -> Response:
        job = await store.get(job_id)
        found = await asyncio.to_thread(checkpoint_list, job.run_dir, job.spec, job.step)
        return answer(request, found)

    async def download(
        job_id: JobId,
        checkpoint: Annotated[str, Path(max_length=100, examples=["final"])],
        policy: Annotated[str, Path(max_length=100, examples=["shared"])],
        format: Literal["peft", "merged", "state"] = "peft",
    ) -> Response:
        job = await store.get(job_id)
        found = await asyncio.to_thread(archive, job.run_dir, job.spec, checkpoint, policy, format)
        headers = {
            "Content-Length": str(found.size_bytes),
            "Content-Disposition": f'attachment; filename="{found.name}.tar"',
            "X-Content-Type-Options": "nosniff",
        }
        chunks = iterate_in_threadpool(found.chunks())
        return StreamingResponse(chunks, headers=headers, media_type="application/x-tar")

    async def logs(request: Request, job_id: JobId) -> Response:
        job = await store.get(job_id)
        return answer(request, await asyncio.to_thread(log_list, job.run_dir))

    async def log(
        request: Request,
        job_id: JobId,
        component: Annotated[str, Path(max_length=130, examples=["trainer-0"])],
        tail: Annotated[int, Query(ge=0, le=10_000)] = 200,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        wait_s: Annotated[float, Query(ge=0.0, le=30.0)] = 0.0,
    ) -> Response:
        run_dir = (await store.get(job_id)).run_dir
        if after is None:
            page = await asyncio.to_thread(log_tail, run_dir, component, tail)
        else:
            page = await _await_lines(run_dir, component, after, limit, wait_s)
        if request.headers.get("accept", "").startswith("text/plain"):
            return PlainTextResponse("".join(f"{line}\n" for line in page["lines"]))
        return answer(request, page)

    plain = {"text/plain": {"schema": {"type": "string"}}}
    log_shows = shows(r.LogPage)
    log_shows[200]["content"].update(plain)
    for path, endpoint, summary, responses in (
        ("/progress", progress, "What the job waits for", shows(m.JobProgress)),
        ("/metrics", metrics, "Curves, as series over steps", shows(r.Metrics, METRICS)),
        ("/steps", steps, "Lines of training steps, newest first", shows(r.StepPage)),
        ("/steps/{number}", step, "One training step", shows(r.Step)),
        ("/checkpoints", checkpoints, "What can be downloaded", shows(r.CheckpointList)),
        ("/logs", logs, "Logs of the job's processes", shows(r.LogList)),
        ("/logs/{component}", log, "Lines of a log: the tail, or after a place", log_shows),
    ):
        routes.add_api_route(
            path,
            endpoint,
            summary=summary,
            response_class=Response,
            responses={**responses, **faults(404, 422)},
        )
    routes.add_api_route(
        "/checkpoints/{checkpoint}/{policy}",
        download,
        summary="Download a policy as PEFT adapter, merged model or trainer state",
        response_class=StreamingResponse,
        responses={**gives("application/x-tar", "A tar archive"), **faults(404, 409, 422)},
    )
    return routes


async def _round(ledger: StepLedger, step: int) -> RoundState | None:
    """The step's round, or the evaluation before it while that is the newest."""
    return await ledger.round(train_round(step)) or await ledger.round(eval_round(step))


def _round_document(state: RoundState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "round_id": state.round_id,
        "kind": "eval" if state.kind == pb.ROUND_KIND_EVAL else "train",
        "step": state.step,
        "num_tickets": state.num_tickets,
        "num_done": state.num_done,
        "num_dropped": state.num_dropped,
        "num_groups": dict(state.num_groups),
        "opened_at": state.opened_at,
    }


def _pace(lines: list[Mapping[str, Any]]) -> float | None:
    """Mean seconds of the last steps that nothing interrupted."""
    whole = [x for x in lines if x["kind"] == "train" and not x.get("interrupted")]
    times = [float(x["wall_s"]) for x in whole[-_LAST_STEPS:]]
    return round(sum(times) / len(times), 3) if times else None


def _step_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()):
        raise InvalidArgumentError(
            f"the cursor {cursor!r} is not one of this list; give next_cursor of a page",
            pointer="/query/cursor",
        )
    return int(cursor)


def _trained_groups(run_dir: FilePath, step: int) -> dict[str, int]:
    """Groups of ``step`` that a checkpoint covers, by policy."""
    found: dict[str, int] = {}
    try:
        with (run_dir / "groups.jsonl").open("rb") as file:
            for line in file:
                if line.startswith(b'{"step": %d,' % step) and line.endswith(b"\n"):
                    document = json.loads(line)
                    found[document["policy"]] = len(document["group_ids"])
    except OSError:
        return found
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
        await asyncio.sleep(_LOG_LOOK_S)
