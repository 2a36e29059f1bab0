"""Feeds a job's lines to its experiment trackers, which can never stop or slow it.

Owns one thread and one bounded queue for each tracker. A tracker that fails is tried again at the
next line; one that hangs loses lines, which are counted; the progress of each is noted in the job's
record, so a restarted router continues there.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from troupe import plugins
from troupe.errors import TroupeError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.tracking.tracker import TrackedRun, Tracker
from troupe.runtime.tracking.values import tracked_step, tracked_values
from troupe.spec.job import TrackerSpec
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import TRACKED_NOTE, JobStore

_log = get_logger(__name__)
_QUEUE = 1000
_LOOK_S = 0.5
_CLOSE_S = 10.0
"""A tracker that has not finished this long after the job's end is left behind."""

Line = Mapping[str, Any]


class TrackerThread:
    """One tracker in its own thread. ``done``: place of the last line that it logged or gave up.

    A dropped line is behind queued ones, and passed only with the next line that is logged.
    """

    def __init__(self, spec: TrackerSpec, run: TrackedRun, done: int) -> None:
        self.kind = spec.kind
        metrics.start_at_zero(metrics.TRACKER_LINES, [spec.kind], ["told", "failed", "dropped"])
        self.done = done
        self.error = ""
        self._run = run
        self._queue: queue.Queue[tuple[int, Line] | str] = queue.Queue(_QUEUE)
        self._tracker: Tracker | None = None
        self._thread = threading.Thread(target=self._work, name=f"tracker-{spec.kind}", daemon=True)
        self._thread.start()

    def offer(self, place: int, line: Line) -> None:
        """Queue the job's line number ``place``; drops and counts it when the tracker hangs."""
        try:
            self._queue.put_nowait((place, line))
        except queue.Full:
            self._count("dropped")

    def finish(self, state: str) -> None:
        """End the run after the queued lines. The first call counts."""
        with suppress(queue.Full):
            self._queue.put_nowait(state)

    def join(self, timeout_s: float) -> bool:
        """Whether the thread ended within ``timeout_s``."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, str):
                self._try(self._close, item)
                return
            place, line = item
            self._count("told" if self._try(self._log_line, line) else "failed")
            self.done = place

    def _log_line(self, line: Line) -> None:
        self._open().log(tracked_step(line), tracked_values(line))

    def _close(self, state: str) -> None:
        if self._tracker is not None:
            self._tracker.close(state)

    def _open(self) -> Tracker:
        if self._tracker is None:
            make: Callable[[TrackedRun], Tracker] = plugins.load(plugins.TRACKERS, self.kind)
            self._tracker = make(self._run)
        return self._tracker

    def _try(self, work: Callable[[Any], None], argument: Any) -> bool:
        try:
            work(argument)
        except Exception as error:  # a tracker may raise anything, and none of it is the job's
            self.error = f"{type(error).__name__}: {error}"[:500]
            return False
        return True

    def _count(self, outcome: str) -> None:
        metrics.TRACKER_LINES.labels(self.kind, outcome).inc()


class Trackers:
    """All trackers of one job. ``run`` must be alive; ``close`` comes last."""

    def __init__(self, job: JobRecord, store: JobStore, events: EventLog) -> None:
        self._job = job
        self._store = store
        self._events = events
        self._threads: list[TrackerThread] = []
        self._offered: list[int] = []
        self._noted: list[int] = []
        self._reported_errors: dict[int, str] = {}

    async def run(self, lines: Callable[[], list[dict[str, Any]]]) -> None:
        """Follow ``lines()`` until cancelled."""
        if not self._job.spec.trackers:
            await asyncio.Event().wait()
        await self._start()
        while True:
            await self._feed(lines())
            await asyncio.sleep(_LOOK_S)

    async def close(self, lines: list[dict[str, Any]], state: str) -> None:
        """Offer the rest, end every run (``state`` "": it goes on later), and wait a while."""
        if not self._threads:
            return
        with suppress(RedisError):
            await self._feed(lines)
        for thread in self._threads:
            thread.finish(state)
        joins = [asyncio.to_thread(thread.join, _CLOSE_S) for thread in self._threads]
        for thread, ended in zip(self._threads, await asyncio.gather(*joins), strict=True):
            if not ended:
                _log.warning("tracker.left_behind", job_id=self._job.job_id, kind=thread.kind)
        with suppress(RedisError, TroupeError):
            await self._tell()

    def abandon(self) -> None:
        """End runs that ``close`` did not end: they go on with another controller."""
        for thread in self._threads:
            thread.finish("")

    async def _start(self) -> None:
        notes = await self._store.notes(self._job.job_id)
        spec = self._job.spec
        for index, tracker in enumerate(spec.trackers):
            num_logged = int(notes.get(_name(index), 0))
            run = TrackedRun(
                self._job.job_id,
                tracker.project or spec.name,
                self._job.run_dir,
                spec.model_dump(mode="json"),
                tracker.options,
                resumes=num_logged > 0,
                unique_id=f"{self._job.job_id}-{round(self._job.created_at * 1000):x}",
            )
            self._threads.append(TrackerThread(tracker, run, num_logged))
            self._offered.append(num_logged)
            self._noted.append(num_logged)

    async def _feed(self, lines: list[dict[str, Any]]) -> None:
        for index, thread in enumerate(self._threads):
            # Fewer lines than logged: the file is not read yet, or a resumed job repeats steps.
            offered = self._offered[index]
            for place, line in enumerate(lines[offered:], offered + 1):
                thread.offer(place, line)
            self._offered[index] = max(offered, len(lines))
        await self._tell()

    async def _tell(self) -> None:
        """Report new errors, and note how far each tracker is."""
        for index, thread in enumerate(self._threads):
            error = thread.error
            if error and self._reported_errors.get(index) != error:
                self._reported_errors[index] = error
                _log.warning("tracker.failed", job_id=self._job.job_id, error=error)
                data = {"kind": thread.kind, "error": error}
                await self._events.emit("tracker.failed", data)
        for index, thread in enumerate(self._threads):
            num_logged = thread.done
            if num_logged != self._noted[index]:
                await self._store.note(self._job.job_id, _name(index), num_logged)
                self._noted[index] = num_logged


def _name(index: int) -> str:
    return f"{TRACKED_NOTE}{index}"
