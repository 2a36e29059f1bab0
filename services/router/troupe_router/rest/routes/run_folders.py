"""Routes of run folders: list them, import lost jobs from them, remove what is too much."""

import asyncio
from itertools import islice
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query

from troupe.clients.rest.models.jobs import JobState
from troupe.clients.rest.models.run_folders import (
    BrokenFolderDocument,
    FolderStatus,
    ImportDocument,
    ImportQuery,
    ProtectedFolderDocument,
    PrunedFolderDocument,
    PruneDocument,
    PruneQuery,
    RunFolderDocument,
    RunFolderPage,
    RunFolderPageQuery,
)
from troupe.errors import InvalidArgumentError
from troupe_router.rest.openapi import EVERY
from troupe_router.rest.parts import Parts
from troupe_router.rest.strict_route import StrictRoute
from troupe_router.run.folders import RunFolder, names, run_folder
from troupe_router.run.retention import RetentionLimits

routes = APIRouter(
    prefix="/v1/run-folders", tags=["run folders"], route_class=StrictRoute, responses=EVERY
)


@routes.get("")
async def page(parts: Parts, query: Annotated[RunFolderPageQuery, Query()]) -> RunFolderPage:
    """Run folders, by name.

    Read from the folders themselves, so also of jobs that Redis has lost.
    """
    runs_dir = parts.settings.runs_dir.absolute()
    folders = await asyncio.to_thread(_page, runs_dir, query.cursor or "", query.limit + 1)
    shown = folders[: query.limit]
    listed = await parts.store.states([folder.path.name for folder in shown])
    return RunFolderPage(
        folders=[_document(folder, listed.get(folder.path.name)) for folder in shown],
        next_cursor=shown[-1].path.name if len(folders) > query.limit else None,
    )


@routes.post("/import")
async def import_jobs(parts: Parts, query: Annotated[ImportQuery, Query()]) -> ImportDocument:
    """List the jobs again that Redis has lost.

    A router does this by itself when it starts, and when it sees that Redis was emptied.
    """
    outcome = await parts.importing.run(is_dry=query.dry_run, with_guessed=query.earlier_versions)
    return ImportDocument(
        dry_run=query.dry_run,
        imported=outcome.jobs,
        known=outcome.known,
        broken=[BrokenFolderDocument(name=n, reason=why) for n, why in outcome.broken.items()],
    )


@routes.delete("")
async def prune(parts: Parts, query: Annotated[PruneQuery, Query()]) -> PruneDocument:
    """Remove the oldest run folders, with their jobs, until the limits hold.

    Never one whose job runs, is pinned, may be resumed, or is named by an unfinished job.
    """
    resumable_s = query.resumable_s
    if resumable_s is None:
        resumable_s = parts.settings.retention_resumable_s
    limits = RetentionLimits(query.max_age_s, query.max_jobs, query.max_bytes, resumable_s)
    if not limits.is_on:
        raise InvalidArgumentError(
            "give at least one of max_age_s, max_jobs and max_bytes, above 0", pointer="/query"
        )
    pruned = await parts.pruning.run(limits, is_dry=query.dry_run)
    removed = [
        PrunedFolderDocument(
            name=chosen.run.name,
            state=chosen.run.state,
            rested_at=chosen.run.rested_at,
            size_bytes=chosen.run.size_bytes,
            why=chosen.why,
        )
        for chosen in pruned.removed
    ]
    return PruneDocument(
        dry_run=query.dry_run,
        used_bytes=pruned.used_bytes,
        freed_bytes=pruned.freed_bytes,
        removed=removed,
        protected=[ProtectedFolderDocument(name=n, reason=w) for n, w in pruned.kept.items()],
    )


def _page(runs_dir: Path, after: str, limit: int) -> list[RunFolder]:
    """The first ``limit`` folders whose names come after ``after``; no other is read."""
    later = (name for name in names(runs_dir) if name > after)
    return [run_folder(runs_dir, name) for name in islice(later, limit)]


def _document(folder: RunFolder, state: JobState | None) -> RunFolderDocument:
    """``state`` is that of a job that is listed."""
    name, head = folder.path.name, folder.head
    status: FolderStatus = "unlisted"
    if state is not None:
        status = "listed"
    elif folder.fault:
        status = "broken"
    elif head is None:
        status = "empty"
    elif folder.is_deleted:
        status = "deleted"
    if head is None:
        return RunFolderDocument(name=name, status=status, reason=folder.fault, state=state)
    return RunFolderDocument(
        name=name,
        status=status,
        reason=head.reason,
        state=state or head.state,
        step=head.step,
        created_at=head.created_at,
        ended_at=head.ended_at or None,
        owner=head.owner,
        is_pinned=head.is_pinned,
    )
