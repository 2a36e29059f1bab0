"""Since when a job has been conducted without a gap; its deadlines count from there.

Owns a note of it beside the job's record, and one in the ledger for the trainer's own deadlines.
While a job is paused, or no router is there, it can't go on, so that time counts against nothing.
An interruption of seconds is no gap: a job that is interrupted again and again still meets its
deadlines.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.retry import until_redis_answers
from troupe_router.jobs.store import JobStore

NOTE = "conducted"
_EVERY_S = 10.0
_GAP_S = 60.0
"""A job that nobody conducted for longer has its time anew: more than an interruption with its
pause takes, and the time for which a controller waits for Redis."""
_REDIS_AWAY_S = 60.0


class Conducted:
    """One term of conducting a job. ``since`` is in Unix seconds.

    ``held_at`` is when something that is nobody's fault was last seen to hold the job back.
    """

    def __init__(
        self,
        store: JobStore,
        ledger: StepLedger,
        job_id: str,
        *,
        held_at: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._held_at = held_at
        self._store = store
        self._ledger = ledger
        self._job_id = job_id
        self.since = time.time()

    async def begin(self) -> None:
        """Continue the time of the controller before this one, if there was one just now."""
        noted = (await self._store.notes(self._job_id)).get(NOTE)
        if noted and time.time() - noted["until"] <= _GAP_S:
            self.since = noted["since"]
        await self._note()

    async def begin_anew(self) -> None:
        """Count from now on."""
        self.since = time.time()
        await self._note()

    async def keep(self) -> NoReturn:
        """Note that the job is conducted, until cancelled. Raises FencedError."""
        what = f"note about job {self._job_id}"
        while True:
            await asyncio.sleep(_EVERY_S)
            await until_redis_answers(self._note, what, within_s=_REDIS_AWAY_S)

    async def _note(self) -> None:
        now = time.time()
        await self._ledger.note_conducted(max(0.0, now - max(self.since, self._held_at())))
        value = {"since": self.since, "until": now}
        await self._store.note(self._job_id, NOTE, value)
