"""Routes of a job's run: progress, curves and steps."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from redis.asyncio import Redis
from starlette.responses import Response

from troupe.api.records.v1 import records_pb2 as pb
from troupe.clients.rest import models as m
from troupe.clients.rest import runs as r
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.ids import eval_round, train_round
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe_router.conduct.progress import ProgressReader
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.rest.bodies import answer
from troupe_router.rest.openapi import METRICS, JobId, shows
from troupe_router.rest.route import Route, routed
from troupe_router.run.episode_pages import step_counts
from troupe_router.run.series import MetricLines, metrics_document
from troupe_router.run.trained_groups import trained_counts

_LAST_STEPS = 10
_MAX_STEP = 10**9


class RunRoutes:
    """Where a run is, and its numbers."""

    def __init__(
        self, redis: Redis, store: JobStore, progress: ProgressReader, lines: MetricLines
    ) -> None:
        self._redis = redis
        self._store = store
        self._progress = progress
        self._lines = lines

    async def progress(self, request: Request, job_id: JobId) -> Response:
        job = await self._store.get(job_id)
        waiting = await self._progress.look(job)
        ledger = StepLedger(self._redis, job_id)
        state = await _round(ledger, job.step)
        pace_s = _pace(await self._read(job))
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
        self,
        request: Request,
        job_id: JobId,
        names: Annotated[list[str] | None, Query(max_length=200)] = None,
        from_step: Annotated[int, Query(ge=0, le=_MAX_STEP)] = 0,
        max_points: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> Response:
        job = await self._store.get(job_id)
        found = await asyncio.to_thread(self._lines.points, job.run_dir)
        document = metrics_document(
            job_id, found, names=names or (), from_step=from_step, max_points=max_points
        )
        return answer(request, document)

    async def steps(
        self,
        request: Request,
        job_id: JobId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(max_length=20)] = None,
    ) -> Response:
        lines = await self._read(await self._store.get(job_id))
        found = [line for line in lines if line["kind"] == "train"]
        found.sort(key=lambda line: -int(line["step"]))
        below = _step_cursor(cursor)
        left = [line for line in found if below is None or line["step"] < below]
        page = left[:limit]
        after = str(page[-1]["step"]) if len(left) > limit else None
        return answer(request, {"steps": page, "next_cursor": after})

    async def step(
        self, request: Request, job_id: JobId, number: Annotated[int, Path(ge=0, le=_MAX_STEP)]
    ) -> Response:
        job = await self._store.get(job_id)
        by_kind = {x["kind"]: x for x in await self._read(job) if x["step"] == number}
        if number > job.spec.steps and not by_kind:
            raise NotFoundError(f"job '{job_id}' has {job.spec.steps} steps, and no step {number}")
        state = await _round(StepLedger(self._redis, job_id), number)
        counts, groups = await asyncio.gather(
            asyncio.to_thread(step_counts, job.run_dir, number),
            asyncio.to_thread(trained_counts, job.run_dir, job.spec, number),
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

    async def _read(self, job: JobRecord) -> list[Mapping[str, Any]]:
        return list(await asyncio.to_thread(self._lines.read, job.run_dir))


def run_routes(
    redis: Redis, store: JobStore, progress: ProgressReader, lines: MetricLines
) -> APIRouter:
    """Routes under /v1/jobs/{job_id} that show a run."""
    own = RunRoutes(redis, store, progress, lines)
    return routed(
        "/v1/jobs/{job_id}",
        "runs",
        Route("/progress", own.progress, "What the job waits for", shows(m.JobProgress)),
        Route("/metrics", own.metrics, "Curves, as series over steps", shows(r.Metrics, METRICS)),
        Route("/steps", own.steps, "Lines of training steps, newest first", shows(r.StepPage)),
        Route("/steps/{number}", own.step, "One training step", shows(r.Step)),
    )


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
