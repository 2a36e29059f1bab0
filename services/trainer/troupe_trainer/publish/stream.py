"""Sends weights over gRPC: the file in chunks, to each replica separately. The default."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from troupe.clients.rollout import WeightsReceipt
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.transport import Send, Target


class StreamTransport:
    """Needs nothing but the replicas' addresses."""

    name = "grpc"
    takes_live = False

    @asynccontextmanager
    async def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AsyncGenerator[Send]:
        async def send(target: Target) -> WeightsReceipt:
            return await target.client.send_weights(export.manifest, export.file, timeout_s)

        yield send

    async def begin(self, targets: Sequence[Target]) -> None:
        """Every replica takes files."""

    async def forget(self, export: Export) -> None:
        """Nothing to delete."""

    async def close(self) -> None:
        """Nothing is kept."""
