"""Routes of a job's run: progress, curves and steps."""

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from troupe.api.records.v1 import records_pb2 as pb
from troupe.clients.rest.models.metrics import (
    MetricsDocument,
    MetricsQuery,
    StepDocument,
    StepPage,
    StepPageQuery,
)
from troupe.clients.rest.models.progress import ProgressDocument, RoundDocument, WaitingDocument
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.ids import eval_round, train_round
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe_router.jobs.record import JobRecord
from troupe_router.rest.openapi import EVERY, problems
from troupe_router.rest.parts import JobId, Parts, RestParts
from troupe_router.rest.strict_route import StrictRoute
from troupe_router.run.episode_pages import step_counts
from troupe_router.run.series import metrics_document
from troupe_router.run.trained_groups import trained_counts

routes = APIRouter(
    prefix="/v1/jobs/{job_id}",
    tags=["runs"],
    route_class=StrictRoute,
    responses={**EVERY, **problems(404)},
)
_LAST_STEPS = 10


@routes.get("/progress")
async def progress(parts: Parts, job_id: JobId) -> ProgressDocument:
    """What the job waits for."""
    job = await parts.store.get(job_id)
    waiting = await parts.progress.look(job)
    ledger = StepLedger(parts.redis, job_id)
    state = await _round(ledger, job.step)
    pace_s = await _pace(ledger, job, await _lines(parts, job))
    left = max(0, job.spec.steps - job.step)
    return ProgressDocument(
        job_id=job_id,
        state=job.state,
        step=job.step,
        steps=job.spec.steps,
        waiting=WaitingDocument(**waiting.to_json()),
        round=_round_document(state),
        versions=await ledger.versions(),
        seconds_per_step=pace_s,
        eta_s=None if pace_s is None or job.is_finished else round(pace_s * left, 1),
    )


@routes.get("/metrics")
async def metrics(
    parts: Parts, job_id: JobId, query: Annotated[MetricsQuery, Query()]
) -> MetricsDocument:
    """Curves, as series over steps."""
    job = await parts.store.get(job_id)
    points = await asyncio.to_thread(parts.lines.points, job.run_dir)
    return metrics_document(
        job_id,
        points,
        names=query.names or (),
        from_step=query.from_step,
        max_points=query.max_points,
    )


@routes.get("/steps")
async def steps(parts: Parts, job_id: JobId, query: Annotated[StepPageQuery, Query()]) -> StepPage:
    """Lines of training steps, newest first."""
    lines = await _lines(parts, await parts.store.get(job_id))
    trained = [line for line in lines if line["kind"] == "train"]
    trained.sort(key=lambda line: -int(line["step"]))
    below = _step_cursor(query.cursor)
    left = [line for line in trained if below is None or line["step"] < below]
    page = left[: query.limit]
    after = str(page[-1]["step"]) if len(left) > query.limit else None
    return StepPage(steps=[dict(line) for line in page], next_cursor=after)


@routes.get("/steps/{number}")
async def step(
    parts: Parts, job_id: JobId, number: Annotated[int, Path(ge=0, le=10**9)]
) -> StepDocument:
    """One training step."""
    job = await parts.store.get(job_id)
    by_kind = {x["kind"]: dict(x) for x in await _lines(parts, job) if x["step"] == number}
    if number > job.spec.steps and not by_kind:
        raise NotFoundError(f"job '{job_id}' has {job.spec.steps} steps, and no step {number}")
    state = await _round(StepLedger(parts.redis, job_id), number)
    counts, groups = await asyncio.gather(
        asyncio.to_thread(step_counts, job.run_dir, number),
        asyncio.to_thread(trained_counts, job.run_dir, job.spec, number),
    )
    is_open = not job.is_finished and (state is not None or number == job.step)
    unwritten = "open" if is_open else "to_come"
    return StepDocument(
        step=number,
        state="recorded" if "train" in by_kind else unwritten,
        train=by_kind.get("train"),
        eval=by_kind.get("eval"),
        round=_round_document(state),
        trained_groups=groups,
        episodes=counts,
    )


async def _lines(parts: RestParts, job: JobRecord) -> list[Mapping[str, Any]]:
    return list(await asyncio.to_thread(parts.lines.read, job.run_dir))


async def _round(ledger: StepLedger, step: int) -> RoundState | None:
    """The step's round, or the evaluation before it while that is the newest."""
    return await ledger.round(train_round(step)) or await ledger.round(eval_round(step))


def _round_document(state: RoundState | None) -> RoundDocument | None:
    if state is None:
        return None
    return RoundDocument(
        round_id=state.round_id,
        kind="eval" if state.kind == pb.ROUND_KIND_EVAL else "train",
        step=state.step,
        num_tickets=state.num_tickets,
        num_done=state.num_done,
        num_dropped=state.num_dropped,
        num_groups=dict(state.num_groups),
        opened_at=state.opened_at,
    )


async def _pace(ledger: StepLedger, job: JobRecord, lines: list[Mapping[str, Any]]) -> float | None:
    """Mean seconds of the last steps that nothing interrupted.

    With ``max_staleness`` rounds are played ahead, so the wall times of steps overlap: of such a
    step it is the time since the end of the step before.
    """
    train = [x for x in lines if x["kind"] == "train" and isinstance(x.get("wall_s"), int | float)]
    if not job.spec.max_staleness:
        times = [float(x["wall_s"]) for x in train if not x.get("interrupted")][-_LAST_STEPS:]
    else:
        last = train[-_LAST_STEPS - 1 :]
        rounds = await asyncio.gather(*(ledger.round(train_round(int(x["step"]))) for x in last))
        ended = [r and r.opened_at + x["wall_s"] for r, x in zip(rounds, last, strict=True)]
        steps = zip(pairwise(ended), last[1:], strict=True)
        times = [b - a for (a, b), x in steps if a and b and not x.get("interrupted")]
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
