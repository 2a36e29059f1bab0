"""How weights get from the trainer to replicas: by gRPC, by a store, or by torch.distributed.

Owns the seam and the choice. A transport moves bytes and asks replicas to stage them; whether the
right bytes arrived, and what serves, is the publisher's.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from troupe.clients.rollout import RolloutClient, WeightsReceipt
from troupe.errors import InvalidArgumentError
from troupe.spec.job import FullSpec, JobSpec
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.settings import TrainerSettings


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


def make_transport(settings: TrainerSettings, job_id: str, spec: JobSpec) -> Transport:
    """The transport that ``TROUPE_TRAINER_WEIGHTS_VIA`` names.

    Raises:
        InvalidArgumentError: the setting does not fit the job or other settings.
    """
    from troupe.runtime.weights.store import open_store
    from troupe_trainer.publish.broadcast import BroadcastTransport
    from troupe_trainer.publish.stored import StoredTransport
    from troupe_trainer.publish.stream import StreamTransport

    stream = StreamTransport()
    if settings.weights_via == "grpc":
        return stream
    if settings.weights_via == "store":
        return StoredTransport(open_store(settings.weights_url, settings.weights_options), job_id)
    if not any(isinstance(policy.train, FullSpec) for policy in spec.policies.values()):
        raise InvalidArgumentError(
            "TROUPE_TRAINER_WEIGHTS_VIA=distributed moves full weights, and every policy of this "
            "job trains an adapter: SGLang loads adapters from files only, and they are small. Set "
            "it to grpc or store."
        )
    return BroadcastTransport(
        stream,
        host=settings.advertise_host or "127.0.0.1",
        device=settings.device,
        join_timeout_s=settings.weights_join_timeout_s,
    )
