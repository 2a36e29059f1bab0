"""The processes of bundles in one env service: fetched, started once, bounded, ended.

Owns which of them live. A bundle whose process keeps ending by itself is refused.
"""

import asyncio
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

from troupe.api.env.v1.env_pb2_grpc import EnvServiceStub
from troupe.bundles.archive import Bundle
from troupe.bundles.settings import BundleSettings
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    TroupeError,
    UnavailableError,
)
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe_env.bundles.process import BundleProcess
from troupe_env.deadlines import SPARE_S
from troupe_env.in_flight import InFlight
from troupe_env.settings import EnvSettings

_log = get_logger(__name__)
_T = TypeVar("_T")
_MAX_DEATHS = 3
"""Ends in a row, without a call answered in between, after which a bundle is refused."""
_REFUSED_S = 60.0
"""Time for which it is: the machine may have been at fault."""
_KEPT_DEATHS = 256
_LATE = "it did not answer in time"


@dataclass(frozen=True, slots=True)
class _Deaths:
    """Ends of one bundle's process that nobody asked for; ``words`` are those of the last."""

    number: int
    words: str
    last_at: float


class BundleProcesses:
    """At most ``max_bundles`` processes; the one that was called longest ago makes room.

    ``fetch`` gives a bundle by its digest: the router's.
    """

    def __init__(self, settings: EnvSettings, fetch: Callable[[str], Awaitable[Bundle]]) -> None:
        self._settings = settings
        self._fetch = fetch
        self._index = BundleSettings().index
        self.in_flight = InFlight()
        self._root: tempfile.TemporaryDirectory[str] | None = None
        self.running: OrderedDict[str, BundleProcess] = OrderedDict()
        self._starting: dict[str, asyncio.Task[BundleProcess]] = {}
        self._deaths: OrderedDict[str, _Deaths] = OrderedDict()

    async def call(
        self,
        digest: str,
        what: str,
        ask: Callable[[EnvServiceStub, float], Awaitable[_T]],
        timeout_s: float,
    ) -> _T:
        """What the bundle's process answers to ``ask(stub, timeout_s)``.

        Raises:
            DeadlineError: it did not in time, and was ended.
            InvalidArgumentError: its process keeps ending by itself.
            OverloadedError: every process is busy, and there may be no more.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        process = await self._process(digest, timeout_s)
        left_s = max(SPARE_S, deadline - asyncio.get_running_loop().time())
        try:
            answer = await process.call(what, ask, left_s)
        except DeadlineError:
            if await self._end(process, _LATE):
                self._count_death(digest, _LATE)
            raise
        except UnavailableError:
            if await process.has_ended():
                await self._died(process)
            raise
        except TroupeError:
            self._deaths.pop(digest, None)
            raise
        self._deaths.pop(digest, None)
        return answer

    async def close(self) -> None:
        """End every process and remove every file."""
        for starting in list(self._starting.values()):
            starting.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        for process in list(self.running.values()):
            await self._end(process, "the env service ends")
        if self._root is not None:
            await asyncio.to_thread(self._root.cleanup)

    async def _process(self, digest: str, timeout_s: float) -> BundleProcess:
        process = self.running.get(digest)
        if process is not None and process.is_alive:
            self.running.move_to_end(digest)
            return process
        if process is not None:
            await self._died(process)
        self._check_deaths(digest)
        starting = self._starting.get(digest)
        if starting is None:
            starting = self._starting[digest] = asyncio.create_task(self._start(digest))
            starting.add_done_callback(lambda done: self._has_started(digest, done))
        try:
            async with asyncio.timeout(timeout_s):
                # Other callers wait for the same start, and it goes on when this one leaves.
                return await asyncio.shield(starting)
        except TimeoutError as error:
            raise DeadlineError(f"the bundle's process was not up in {timeout_s:g} s") from error

    def _has_started(self, digest: str, done: "asyncio.Task[BundleProcess]") -> None:
        self._starting.pop(digest, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.warning("bundle.not_started", digest=digest, error=str(error))

    async def _start(self, digest: str) -> BundleProcess:
        await self._make_room()
        bundle = await self._fetch(digest)
        if self._root is None:
            self._root = tempfile.TemporaryDirectory(prefix="troupe-bundles-")
        process = await BundleProcess.start(
            bundle, self._settings, root=Path(self._root.name), index=self._index
        )
        self.running[digest] = process
        metrics.ENV_BUNDLES.set(len(self.running))
        return process

    async def _make_room(self) -> None:
        limit = self._settings.max_bundles
        if len(self.running) + len(self._starting) <= limit:
            return
        idle = next((p for p in self.running.values() if not p.num_calls), None)
        if idle is None:
            raise OverloadedError(
                f"{limit} bundles are at work here already; try again, add env replicas, or raise "
                "TROUPE_ENV_MAX_BUNDLES"
            )
        await self._end(idle, "makes room for another")

    async def _died(self, process: BundleProcess) -> None:
        """Count an end that nobody asked for, once; raises where it was one too many."""
        words = await process.last_words()
        if await self._end(process, words):
            self._count_death(process.digest, words)
        self._check_deaths(process.digest)

    async def _end(self, process: BundleProcess, why: str) -> bool:
        """End it, once for all that ask; whether this call did."""
        if self.running.get(process.digest) is not process:
            return False
        del self.running[process.digest]
        metrics.ENV_BUNDLES.set(len(self.running))
        _log.info("bundle.ended", digest=process.digest, why=why)
        await process.close()
        return True

    def _count_death(self, digest: str, words: str) -> None:
        earlier = self._deaths.pop(digest, None)
        self._deaths[digest] = _Deaths(earlier.number + 1 if earlier else 1, words, monotonic())
        while len(self._deaths) > _KEPT_DEATHS:
            self._deaths.popitem(last=False)

    def _check_deaths(self, digest: str) -> None:
        deaths = self._deaths.get(digest)
        if deaths is not None and monotonic() - deaths.last_at > _REFUSED_S:
            del self._deaths[digest]
        elif deaths is not None and deaths.number >= _MAX_DEATHS:
            raise InvalidArgumentError(
                f"the process of the bundle {digest[:19]} ended {_MAX_DEATHS} times in a row "
                f"without an answer ({deaths.words}); correct the code, and submit it again"
            )
