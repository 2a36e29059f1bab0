"""Sends full weights by torch.distributed: from the learner's tensors into all replicas' engines.

Owns which group a push takes. A policy's group is kept from push to push and made anew when a
replica has joined, left or failed, so a push to one replica alone has a group of those two. No file
and no copy of the model is made. Adapters go by the file transport.
"""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import torch
from torch.cuda import nccl

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.clients.rollout import RolloutStatus, WeightsReceipt
from troupe.errors import InvalidArgumentError, TroupeError, UnavailableError
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.weights.group import BUCKET_BYTES
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.checkpoint.live import LiveWeights
from troupe_trainer.publish.group import Member, PushGroup
from troupe_trainer.publish.transport import Send, Target, Transport

_log = get_logger(__name__)


class BroadcastTransport:
    """NCCL between GPUs, gloo otherwise. ``files`` carries what can't be broadcast."""

    name = "distributed"

    def __init__(
        self,
        files: Transport,
        *,
        host: str,
        device: str = "auto",
        join_timeout_s: float = 60.0,
        bucket_bytes: int = BUCKET_BYTES,
        is_required: bool = True,
    ) -> None:
        """``is_required`` False: where an engine joins no group, all goes by ``files``."""
        self.takes_live = True
        self._is_required = is_required
        self._files = files
        self._host = host
        self._has_gpu = device != "cpu" and torch.cuda.is_available()
        self._nccl = _nccl_release() if self._has_gpu else ""
        self._join_timeout_s = join_timeout_s
        self._bucket_bytes = bucket_bytes
        self._counter = itertools.count(1)
        self._nonce = uuid.uuid4().hex[:8]
        self._groups: dict[str, PushGroup] = {}

    @asynccontextmanager
    async def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AsyncGenerator[Send]:
        if export.live is None:
            async with self._files.session(export, targets, timeout_s=timeout_s) as send_file:
                yield send_file
            return
        policy = export.manifest.policy
        statuses = await _statuses(targets)
        group = await asyncio.to_thread(self._group, policy, targets, statuses)
        places = group.places()
        has_begun = asyncio.Event()
        sending = asyncio.ensure_future(self._sending(export.live, group, has_begun))
        failures: list[BaseException] = []

        async def send(target: Target) -> WeightsReceipt:
            place = places[_member(target)]
            source = pb.BroadcastWeights(
                host=place.host,
                port=place.port,
                group=place.name,
                world_size=place.world_size,
                rank_offset=place.rank_offset,
                backend=place.backend,
                is_formed=place.is_formed,
                bucket_bytes=self._bucket_bytes,
            )
            try:
                return await target.client.send_weights(export.manifest, source, timeout_s)
            except BaseException as error:
                failures.append(error)
                if place.backend == "nccl":
                    group.give_up()
                raise

        try:
            await _first_of(has_begun, sending)
            yield send
        finally:
            # gloo ends by the group's own time-out; NCCL has none while it connects, and a learner
            # that began a step meanwhile sends nothing before its end.
            await asyncio.wait({sending}, timeout=timeout_s + 2 * self._join_timeout_s)
            if not sending.done():
                self._give_up(policy)
                sending.add_done_callback(_heard)
                raise UnavailableError(
                    f"The broadcast of policy '{policy}' is not done: the trainer learns, or a "
                    "replica never joined its group. It is sent again through another one."
                )
            failed = sending.exception()
            if failed is not None or failures:
                self._give_up(policy)
            if failed is not None and not isinstance(failed, TroupeError):
                raise failed  # else each replica says what it missed

    async def begin(self, targets: Sequence[Target]) -> None:
        if self._is_required:
            return
        try:
            self._backend(targets, await _statuses(targets))
        except InvalidArgumentError as error:
            self.takes_live = False
            self.name = self._files.name
            _log.warning("publisher.by_file", reason=error.message)

    async def forget(self, export: Export) -> None:
        await self._files.forget(export)

    async def close(self) -> None:
        for policy in list(self._groups):
            self._give_up(policy)

    async def _sending(self, live: LiveWeights, group: PushGroup, begun: asyncio.Event) -> None:
        """Send on the thread that learns: it may be busy, and may have learnt on by then.

        Members are waited for elsewhere, so that learning goes on meanwhile.
        """
        await live.on_thread(live.check)
        begun.set()
        await asyncio.to_thread(group.form)
        await live.on_thread(lambda: group.send(live, self._bucket_bytes))

    def _group(
        self, policy: str, targets: Sequence[Target], statuses: Sequence[RolloutStatus]
    ) -> PushGroup:
        """The policy's group where these are its members, else a new one."""
        members = {
            _member(target): status.weight_ranks
            for target, status in zip(targets, statuses, strict=True)
        }
        held = self._groups.get(policy)
        if held is not None and held.members == members:
            return held
        backend = self._backend(targets, statuses)
        self._give_up(policy)
        name = f"troupe-{self._nonce}-{next(self._counter)}"
        group = self._groups[policy] = PushGroup(
            name, members, host=self._host, backend=backend, timeout_s=self._join_timeout_s
        )
        return group

    def _give_up(self, policy: str) -> None:
        if (group := self._groups.pop(policy, None)) is not None:
            group.give_up()

    def _backend(self, targets: Sequence[Target], statuses: Sequence[RolloutStatus]) -> str:
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
        if backends == {"nccl"}:
            self._check_nccl(targets, statuses)
        return backends.pop()

    def _check_nccl(self, targets: Sequence[Target], statuses: Sequence[RolloutStatus]) -> None:
        """NCCL connects only equal releases, and says so when the first tensor is under way."""
        for target, status in zip(targets, statuses, strict=True):
            if self._is_required and not status.weight_nccl:
                continue  # asked for by name: whether they fit is known to who asked
            if status.weight_nccl != self._nccl:
                theirs = status.weight_nccl or "of a release that it does not report"
                raise InvalidArgumentError(
                    f"Replica {target.replica_id} has NCCL {theirs} and the trainer has NCCL "
                    f"{self._nccl}: a group needs one release. Give both environments the same "
                    "nvidia-nccl package, or send the weights by file "
                    "(TROUPE_TRAINER_WEIGHTS_VIA=grpc or store)."
                )


def _nccl_release() -> str:
    """As a replica reports its own."""
    return ".".join(map(str, nccl.version()[:3]))


def _member(target: Target) -> Member:
    return target.replica_id, target.incarnation


def _heard(sending: "asyncio.Future[None]") -> None:
    """Somebody has seen how it ended, too late to matter."""
    sending.exception()


async def _statuses(targets: Sequence[Target]) -> list[RolloutStatus]:
    return await asyncio.gather(*(target.client.status() for target in targets))


async def _first_of(begun: asyncio.Event, sending: "asyncio.Future[None]") -> None:
    """Wait until the sending has begun; raises its error where it failed before."""
    waiting = asyncio.ensure_future(begun.wait())
    try:
        await asyncio.wait({waiting, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    if sending.done() and (error := sending.exception()) is not None and not begun.is_set():
        raise error
