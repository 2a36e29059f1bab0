"""For how long a step is learnt ahead, and how much of that is after its round.

Owns the two times. Never learns, and never looks at a round.
"""

import time
from collections.abc import Awaitable


class AheadTimes:
    """Of one step. What was begun while the round was played may end after it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = (0.0, 0.0)

    async def add(self, learning: Awaitable[bool]) -> bool:
        """Await ``learning``, which says whether it learnt from anything, and add its time."""
        began_at, began = time.time(), time.monotonic()
        is_learning = await learning
        if is_learning:
            passed = time.monotonic() - began
            self.seconds += passed
            self._last = (began_at, began_at + passed)
        return is_learning

    def late_s(self, completed_at: float | None) -> float:
        """Seconds of it after the round, which ended at ``completed_at``; 0 if that is unknown."""
        began_at, ended_at = self._last
        return 0.0 if completed_at is None else max(0.0, ended_at - max(began_at, completed_at))
