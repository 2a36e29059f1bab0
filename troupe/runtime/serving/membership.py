"""A process's membership of the platform: registers, sends heartbeats, receives its assignment.

Tolerates an unreachable router: a restart of the router is normal. Never does the work itself.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from troupe.api.router.v1.router_pb2 import Assignment, Replica
from troupe.clients.router import RouterClient
from troupe.errors import NotFoundError, TroupeError
from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)


class ShouldExit(Exception):  # noqa: N818 (an instruction, not a failure)
    """The work of this process is finished: drain and exit with status 0."""


class Reassigned(ShouldExit):
    """The router gave this process another job: exit, to be started afresh for it."""


class Membership:
    """One member. ``describe`` returns its current state, and is called at every heartbeat.

    ``hear`` is called with each assignment that an answer contains.
    """

    def __init__(
        self,
        client: RouterClient,
        describe: Callable[[], Replica],
        *,
        interval_s: float = 1.0,
        hear: Callable[[Assignment], None] | None = None,
    ) -> None:
        self._hear = hear
        self._client = client
        self._describe = describe
        self._interval_s = interval_s
        self._is_registered = False
        self._is_reachable = True
        self._job_id = ""
        self._changed = asyncio.Event()

    async def join(self) -> Assignment:
        """Register and wait until there is something to work on.

        Waits as long as it takes: processes may be up before any job exists.

        Raises:
            ShouldExit: the job that this process was started for is over.
            TroupeError: the router refuses this process.
        """
        while True:
            assignment = await self._beat()
            if assignment is not None and assignment.job_id:
                self._job_id = assignment.job_id
                _log.info("membership.assigned", job_id=assignment.job_id)
                return assignment
            await asyncio.sleep(self._interval_s)

    async def run(self) -> None:
        """Heartbeat until cancelled.

        Raises:
            ShouldExit: the job is over; Reassigned: there is another one.
        """
        while True:
            self._changed.clear()
            assignment = await self._beat()
            job_id = assignment.job_id if assignment is not None else ""
            if job_id and self._job_id and job_id != self._job_id:
                raise Reassigned(f"the router assigned job {job_id} after {self._job_id}")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._changed.wait()

    def tell(self) -> None:
        """Send the next heartbeat now: what ``describe`` returns has changed."""
        self._changed.set()

    async def _beat(self) -> Assignment | None:
        """One exchange with the router; None when it is unreachable."""
        timeout_s = max(2.0, 2 * self._interval_s)
        try:
            if not self._is_registered:
                assignment = await self._client.register(self._describe(), timeout_s=timeout_s)
                self._is_registered = True
            else:
                answer = await self._client.heartbeat(self._describe(), timeout_s=timeout_s)
                if answer.should_exit:
                    raise ShouldExit("the router says that the job is over")
                assignment = answer.assignment
        except NotFoundError:
            self._is_registered = False
            _log.info("membership.forgotten")
            return None
        except TroupeError as error:
            if not error.retryable:
                raise
            self._note(False, error.message)
            return None
        self._note(True)
        if self._hear is not None and assignment.job_id:
            self._hear(assignment)
        return assignment

    def _note(self, is_reachable: bool, why: str = "") -> None:
        if is_reachable != self._is_reachable:
            self._is_reachable = is_reachable
            if is_reachable:
                _log.info("membership.router_is_back")
            else:
                _log.warning("membership.router_is_away", error=why)
