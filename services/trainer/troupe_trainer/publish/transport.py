"""The interface of transports, which carry weights from the trainer to replicas.

Owns no transport and no choice. A transport moves bytes and asks replicas to stage them; whether
the right bytes arrived, and what serves, is the publisher's concern.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from troupe.clients.rollout import RolloutClient, WeightsReceipt
from troupe_trainer.checkpoint.export import Export


@dataclass(frozen=True, slots=True)
class Target:
    """A replica that should receive a version."""

    replica_id: str
    client: RolloutClient
    incarnation: str = ""


Send = Callable[[Target], Awaitable[WeightsReceipt]]
"""Stage the session's version on one of its targets; raises TroupeError."""


class Transport(Protocol):
    """One way for bytes to travel."""

    name: str
    takes_live: bool
    """Full weights come from the learner's tensors, and no file of them is made."""

    def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AbstractAsyncContextManager[Send]:
        """Prepare to send ``export`` to ``targets``, all of them concurrently."""
        ...

    async def begin(self, targets: Sequence[Target]) -> None:
        """Look once, before the first push, at the replicas that will be sent to."""
        ...

    async def forget(self, export: Export) -> None:
        """Forget a version that will not be sent any more."""
        ...

    async def close(self) -> None:
        """Give up what is kept between pushes."""
        ...
