"""What the routes work with: the router's parts, and the parameters that many of them take."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from fastapi import Depends, Path, Request
from redis.asyncio import Redis

from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.streams.memory import RedisMemory
from troupe_router.conduct.dry_runs import DryRuns
from troupe_router.conduct.progress import ProgressReader
from troupe_router.jobs.bundles import BundleStore
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.store import MemberStore
from troupe_router.rest.access.access_control import CALLER
from troupe_router.rest.access.api_keys import Caller, KeyStore
from troupe_router.rest.access.rate_limits import WrongKeys
from troupe_router.rest.event_fanout import EventFanout
from troupe_router.run.importing import JobImport
from troupe_router.run.pruning import RunPruning
from troupe_router.run.series import MetricLines
from troupe_router.settings import RouterSettings

JobId = Annotated[
    str, Path(description="Id of the job, as `POST /v1/jobs` gave it.", examples=["demo-1"])
]


@dataclass(frozen=True)
class RestParts:
    """What the routes need. ``is_ready`` says whether the router can take jobs now."""

    settings: RouterSettings
    redis: Redis
    store: JobStore
    commands: JobCommands
    members: MemberStore
    fanout: EventFanout
    is_ready: Callable[[], Awaitable[bool]]
    disk: DiskSpace
    keys: KeyStore = field(default_factory=lambda: KeyStore(None))
    wrong_keys: WrongKeys = field(default_factory=WrongKeys)
    lines: MetricLines = field(default_factory=MetricLines)
    dry_runs: DryRuns | None = None
    memory: RedisMemory = field(default_factory=RedisMemory)

    @property
    def bundles(self) -> BundleStore:
        """Uploaded code."""
        return self.commands.bundles

    @cached_property
    def importing(self) -> JobImport:
        """Brings lost jobs back."""
        return JobImport(self.redis, self.store, self.settings.runs_dir)

    @cached_property
    def pruning(self) -> RunPruning:
        """Removes run folders."""
        return RunPruning(self.store, self.commands, self.settings.runs_dir)

    @cached_property
    def progress(self) -> ProgressReader:
        """Says what a job waits for."""
        return ProgressReader(self.redis, self.members, self.settings, self.disk, self.memory)


async def _parts(request: Request) -> RestParts:
    return request.app.state.parts


async def _caller(request: Request) -> Caller:
    return request.scope[CALLER]


async def _counted_as(request: Request) -> str:
    caller: Caller = request.scope[CALLER]
    return caller.name or (request.client.host if request.client else "")


Parts = Annotated[RestParts, Depends(_parts)]
WhoAsks = Annotated[Caller, Depends(_caller)]
"""The caller, as admission knows it."""
CountedAs = Annotated[str, Depends(_counted_as)]
"""Whose streams and long polls are counted together: a key's, or an address's without keys."""
