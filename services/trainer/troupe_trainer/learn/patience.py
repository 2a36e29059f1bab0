"""How long the trainer waits for others: a limit on the time in which a router conducts the job.

The conductor's own limits begin anew after a pause, a full disk, a cluster's queue, or a time with
no router; a trainer that went by its clock alone would end jobs that the conductor goes on with.
"""

import time
from collections.abc import Awaitable, Callable

from troupe.runtime.streams.conducting import Conducting

Ask = Callable[[], Awaitable[Conducting | None]]
"""What the conductor said last; None of one that says nothing, which counts all time."""


async def nobody_says() -> None:
    """No conductor says anything: the limit is on the trainer's own clock."""
    return


class Patience:
    """One wait of at most ``limit_s``, which begins now.

    Example: ``Patience(3600.0, ledger.conducting)``.
    """

    def __init__(
        self, limit_s: float, ask: Ask, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit_s = limit_s
        self._ask = ask
        self._clock = clock
        self._began = clock()

    def begin_anew(self) -> None:
        """Count from now on."""
        self._began = self._clock()

    def leave_out(self, seconds: float) -> None:
        """Do not count the last ``seconds``."""
        self._began += seconds

    async def is_over(self) -> bool:
        """Whether time is up: what counts ends when a conductor last said that it is there."""
        waited_s = self._clock() - self._began
        if waited_s <= self.limit_s:
            return False
        said = await self._ask()
        return said is None or min(waited_s - said.silent_s, said.counted_s) > self.limit_s
