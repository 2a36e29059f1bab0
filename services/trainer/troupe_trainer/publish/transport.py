"""How weights get from the trainer to replicas: the seam that every transport fills.

Owns no transport and no choice. A transport moves bytes and asks replicas to stage them; whether
the right bytes arrived, and what serves, is the publisher's.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from troupe.clients.rollout import RolloutClient, WeightsReceipt
from troupe_trainer.checkpoint.export import Export


@dataclass(frozen=True, slots=True)
class Target:
    """A replica that is to get a version."""

    replica_id: str
    client: RolloutClient


Send = Callable[[Target], Awaitable[WeightsReceipt]]
"""Stage the session's version on one of its targets; raises TroupeError."""


class Transport(Protocol):
    """One way for bytes to travel."""

    name: str

    def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AbstractAsyncContextManager[Send]:
        """Prepare to bring ``export`` to ``targets``, all of which are then sent to at once."""
        ...

    async def forget(self, export: Export) -> None:
        """A version that nobody will be sent any more."""
        ...
