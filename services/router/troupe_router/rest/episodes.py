"""Routes of recorded episodes: filtered pages, and one episode's whole tree."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from troupe.clients.rest import runs as r
from troupe.episodes.build import JobParts, load_parts
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.rest.bodies import answer
from troupe_router.rest.openapi import EPISODES, JobId, shows
from troupe_router.rest.route import Route, routed
from troupe_router.run.episode_pages import (
    EpisodeFilter,
    Failure,
    Order,
    episode_page,
    find_episode,
    lines_of_step,
    twins,
)
from troupe_router.run.episode_tree import (
    Credit,
    episode_task,
    episode_turns,
    is_step_wide,
    step_advantages,
    told_by_trainer,
)
from troupe_router.run.token_texts import with_texts
from troupe_router.run.trained_groups import trained_advantages

_MAX_STEP_EPISODES = 256
"""A step-wide advantage needs every episode of the step; larger steps are shown without."""
_ABOUT_PAGES = (
    "Rewards filter and order by the mean reward of `agent`, or of the whole episode. "
    "`failure=any` gives those that did not solve the task."
)


class EpisodeRoutes:
    """Recorded episodes of one job."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def page(
        self,
        request: Request,
        job_id: JobId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(max_length=400)] = None,
        kind: Literal["train", "eval"] | None = None,
        step: Annotated[int | None, Query(ge=0, le=10**9)] = None,
        agent: Annotated[str | None, Query(max_length=100)] = None,
        min_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        max_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        failure: Failure | None = None,
        task_id: Annotated[str | None, Query(max_length=300)] = None,
        order: Order = "newest",
    ) -> Response:
        job = await self._store.get(job_id)
        wanted = EpisodeFilter(
            kind=kind,
            step=step,
            agent=agent,
            min_reward=min_reward,
            max_reward=max_reward,
            failure=failure,
            task_id=task_id,
            order=order,
        )
        page = await asyncio.to_thread(
            episode_page, job.run_dir, wanted, limit=limit, cursor=cursor
        )
        return answer(request, page)

    async def one(
        self,
        request: Request,
        job_id: JobId,
        episode_id: Annotated[str, Path(max_length=200, examples=["train-00004-00017"])],
    ) -> Response:
        job = await self._store.get(job_id)
        return answer(request, await asyncio.to_thread(episode_document, job, episode_id))


def episode_routes(store: JobStore) -> APIRouter:
    """Routes under /v1/jobs/{job_id}/episodes."""
    own = EpisodeRoutes(store)
    return routed(
        "/v1/jobs/{job_id}/episodes",
        "episodes",
        Route(
            "",
            own.page,
            "Recorded episodes",
            shows(r.EpisodePage, EPISODES),
            description=_ABOUT_PAGES,
        ),
        Route(
            "/{episode_id}",
            own.one,
            "One episode: every turn with all siblings",
            shows(r.Episode),
        ),
    )


def episode_document(job: JobRecord, short: str) -> dict[str, Any]:
    """The whole tree of one episode; raises NotFoundError."""
    row, line = find_episode(job.run_dir, short)
    parts = load_parts(job.spec)
    turns = episode_turns(line, parts, _credits(job, line, parts))
    return {
        **row,
        "task": episode_task(line, parts),
        "turns": with_texts(turns, job.spec),
        "others": twins(job.run_dir, line["task_id"], short),
    }


def _credits(job: JobRecord, line: dict[str, Any], parts: JobParts) -> dict[str, Credit]:
    """What the trainer wrote down; what the rewards say while it has not."""
    if line["kind"] != "train":
        return {}
    trained = trained_advantages(job.run_dir, job.spec, line["step"])
    told = {} if trained is None else told_by_trainer(line, parts, trained)
    if len(told) == len(line.get("groups") or []):
        return told
    computed = _advantages(job, line, parts)
    return {name: Credit(own, "rewards") for name, own in computed.items()} | told


def _advantages(job: JobRecord, line: dict[str, Any], parts: JobParts) -> dict[str, list[float]]:
    if not is_step_wide(parts):
        return step_advantages([line], parts)
    lines = lines_of_step(job.run_dir, line["step"], limit=_MAX_STEP_EPISODES + 1)
    if len(lines) != job.spec.tasks_per_step or len(lines) > _MAX_STEP_EPISODES:
        return {}
    return step_advantages(lines, parts)
