"""Whose turn the device is, where SGLang shares it with the trainer: the server's states.

Owns the order drain, release, resume, load, and who waits meanwhile. Each transition runs to its
end whoever gives up waiting for it, is joined by calls that want the same, and leaves a state that
is known: a server whose memory is not is ended, and made anew when it is woken. So whatever is
killed, the device is free while it is asleep, and nothing answers before all weights are back.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from troupe.errors import OverloadedError, TroupeError
from troupe.runtime.faults import reached
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)

TurnState = Literal["awake", "draining", "asleep", "waking"]
NEXT: Mapping[TurnState, frozenset[TurnState]] = {
    "awake": frozenset({"draining"}),
    "draining": frozenset({"asleep", "awake"}),
    "asleep": frozenset({"waking"}),
    "waking": frozenset({"awake", "asleep"}),
}
"""Where each state may lead. Draining goes back where requests do not end or a server can't be
ended, waking where no server comes up; both are tried again."""


class SleepingServer(Protocol):
    """One server as the turns see it; `supervisor.Supervisor`."""

    async def release(self) -> None:
        """Free the device; a server that does not answer is ended.

        Raises UnavailableError when a process of it can't be ended: the device is not free.
        """
        ...

    async def resume(self) -> None:
        """Serve again, with everything that it held; raises TroupeError when it can't."""
        ...


class DeviceTurns:
    """The turns of one device. Without ``is_colocated`` it is always the servers'."""

    def __init__(self, *, is_colocated: bool, drain_timeout_s: float) -> None:
        self.is_colocated = is_colocated
        self.state: TurnState = "asleep" if is_colocated else "awake"
        self._drain_timeout_s = drain_timeout_s
        self._servers: Sequence[SleepingServer] = ()
        self._num_users = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._awake = asyncio.Event()
        if not is_colocated:
            self._awake.set()
        self._lock = asyncio.Lock()
        self._turns: dict[asyncio.Task[None], TurnState] = {}
        """Those that run or wait for it, in order."""

    def of(self, servers: Sequence[SleepingServer]) -> None:
        """The servers on the device."""
        self._servers = servers

    @contextlib.asynccontextmanager
    async def user(self, *, waits: bool = True) -> AsyncGenerator[None]:
        """A request: it keeps the device's servers awake until the block ends.

        While they are not, it waits for its caller's deadline, or raises OverloadedError.
        """
        while self.state != "awake":
            if not waits:
                raise OverloadedError(
                    f"The server is {self.state}: the trainer has the device. Try again when it "
                    "has given it back."
                )
            await self._awake.wait()
        self._num_users += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_users -= 1
            if self._num_users == 0:
                self._idle.set()

    async def sleep(self) -> None:
        """Give the device to the trainer. Idempotent.

        Raises:
            OverloadedError: requests did not end in time; UnavailableError: a server can't be
            ended. Either way the device is the servers'.
        """
        await self._joined("asleep", self._sleep)

    async def wake(self) -> None:
        """Take the device, and serve what was served. Idempotent.

        Raises TroupeError when a server can't be brought up; then it sleeps on.
        """
        await self._joined("awake", self._wake)

    async def close(self) -> None:
        """End what runs."""
        turns = list(self._turns)
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)

    async def _joined(self, target: TurnState, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` or join its run; a caller that goes away ends none.

        Only the last run is joined: after any other, another state is what was asked for last.
        """

        async def run() -> None:
            async with self._lock:
                if self.state != target:
                    began = time.monotonic()
                    await work()
                    seconds = time.monotonic() - began
                    metrics.ROLLOUT_TURN_SECONDS.labels(target).observe(seconds)
                    _log.info("device.turn", state=self.state, seconds=round(seconds, 2))

        turn, wanted = next(reversed(self._turns.items()), (None, None))
        if turn is None or wanted != target:
            turn = asyncio.get_running_loop().create_task(run(), name=f"turn-{target}")
            self._turns[turn] = target
            turn.add_done_callback(self._turns.pop)
        await asyncio.shield(turn)

    async def _sleep(self) -> None:
        self._enter("draining")
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await self._idle.wait()
        except BaseException as error:
            self._enter("awake")
            if not isinstance(error, TimeoutError):
                raise
            raise OverloadedError(
                f"{self._num_users} requests did not end within {self._drain_timeout_s:g} s, so "
                "the server keeps the device. Try again, or raise "
                "TROUPE_ROLLOUT_SGLANG_DRAIN_TIMEOUT_S."
            ) from error
        reached("rollout.drained")
        await self._release()
        reached("rollout.asleep")

    async def _wake(self) -> None:
        self._enter("waking")
        reached("rollout.waking")
        try:
            await asyncio.gather(*(server.resume() for server in self._servers))
        except BaseException as error:
            if isinstance(error, TroupeError):
                _log.error("device.not_woken", error=error.message)
            await self._release()
            raise
        self._enter("awake")

    async def _release(self) -> None:
        """Free the device; where that fails, it is the servers' until they are told again."""
        try:
            await asyncio.gather(*(server.release() for server in self._servers))
        except BaseException:
            self._enter("awake")
            raise
        self._enter("asleep")

    def _enter(self, state: TurnState) -> None:
        assert state in NEXT[self.state], f"{self.state} to {state}"
        self.state = state
        if state == "awake":
            self._awake.set()
        else:
            self._awake.clear()
