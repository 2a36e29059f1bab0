"""Sends full weights by torch.distributed: one broadcast into the engines of all replicas.

Owns rank 0 and the group's store. A group is made for each push and never used again, so that a
replica that joins or leaves between two pushes makes no difference. Adapters go by the file
transport.
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import torch
from safetensors import safe_open
from torch.distributed import TCPStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.clients.rollout import RolloutStatus, WeightsReceipt
from troupe.errors import InvalidArgumentError
from troupe.runtime.weights.group import WeightGroup, broadcast, join_group
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.transport import Send, Target, Transport

WINDOW = 8
"""Broadcasts that are under way together."""


class BroadcastTransport:
    """NCCL between GPUs, gloo otherwise. ``files`` carries what can't be broadcast."""

    name = "distributed"

    def __init__(
        self, files: Transport, *, host: str, device: str = "auto", join_timeout_s: float = 60.0
    ) -> None:
        self._files = files
        self._host = host
        self._has_gpu = device != "cpu" and torch.cuda.is_available()
        self._join_timeout_s = join_timeout_s
        self._counter = itertools.count(1)
        self._nonce = uuid.uuid4().hex[:8]

    @asynccontextmanager
    async def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AsyncGenerator[Send]:
        if export.manifest.kind != "full":
            async with self._files.session(export, targets, timeout_s=timeout_s) as send_file:
                yield send_file
            return
        statuses = await asyncio.gather(*(target.client.status() for target in targets))
        timeout = timedelta(seconds=self._join_timeout_s)
        store = TCPStore(self._host, 0, None, True, timeout, wait_for_workers=False)
        places = self._places(targets, statuses, store.port)
        group = next(iter(places.values()))
        sending = asyncio.ensure_future(asyncio.to_thread(self._send_all, export, group, store))

        async def send(target: Target) -> WeightsReceipt:
            place = places[target.replica_id]
            source = pb.BroadcastWeights(
                host=place.host,
                port=place.port,
                group=place.name,
                world_size=place.world_size,
                rank_offset=place.rank_offset,
                backend=place.backend,
            )
            return await target.client.send_weights(export.manifest, source, timeout_s)

        try:
            yield send
        finally:
            await asyncio.wait({sending})  # bounded by the group's own time-out
            if (error := sending.exception()) is not None and not isinstance(error, RuntimeError):
                raise error

    async def forget(self, export: Export) -> None:
        await self._files.forget(export)

    def _places(
        self, targets: Sequence[Target], statuses: Sequence[RolloutStatus], port: int
    ) -> dict[str, WeightGroup]:
        """The group as each replica enters it."""
        for target, status in zip(targets, statuses, strict=True):
            if status.weight_ranks < 1:
                raise InvalidArgumentError(
                    f"Replica {target.replica_id} (engine '{status.engine}') takes no weights by "
                    "torch.distributed; SGLang does with TROUPE_ROLLOUT_SGLANG_DP_SIZE=1. Set "
                    "TROUPE_TRAINER_WEIGHTS_VIA to grpc or store."
                )
        backends = {status.weight_backend for status in statuses}
        trainer_backend = "nccl" if self._has_gpu else "gloo"
        if len(backends) > 1 or (trainer_backend == "gloo" and backends == {"nccl"}):
            raise InvalidArgumentError(
                f"The replicas need {sorted(backends)} and the trainer has {trainer_backend}: a "
                "broadcast needs one backend. Give the trainer and all replicas GPUs, or none of "
                "them, or set TROUPE_TRAINER_WEIGHTS_VIA to grpc or store."
            )
        name = f"troupe-{self._nonce}-{next(self._counter)}"
        world_size = 1 + sum(status.weight_ranks for status in statuses)
        places: dict[str, WeightGroup] = {}
        rank = 1
        for target, status in zip(targets, statuses, strict=True):
            places[target.replica_id] = WeightGroup(
                self._host, port, name, world_size, rank, status.weight_backend
            )
            rank += status.weight_ranks
        return places

    def _send_all(self, export: Export, group: WeightGroup, store: Any) -> Any:
        """Rank 0: every tensor of the manifest, in its order. Blocks; torch raises RuntimeError.

        Returns the communicator, to be kept until every rank has received everything.
        """
        device = "cuda" if group.backend == "nccl" else "cpu"
        communicator = join_group(distributed_c10d, store, group, 0, timeout_s=self._join_timeout_s)
        with safe_open(export.path, framework="pt", device=device) as file:
            under_way: list[tuple[Any, torch.Tensor]] = []
            for entry in export.manifest.tensors:
                tensor = file.get_tensor(entry.name)
                under_way.append((broadcast(distributed_c10d, communicator, tensor), tensor))
                if len(under_way) >= WINDOW:
                    under_way.pop(0)[0].wait()
            for work, _ in under_way:
                work.wait()
        if group.backend == "nccl":
            torch.cuda.synchronize()
        return communicator
