"""Delivers one version to some replicas: stages, proves by digest and canary, activates.

Owns the calls to replicas and what their answers must be. The publisher decides which replicas,
when, and what a failure means; the transport decides how bytes travel.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from troupe.api.router.v1.router_pb2 import Replica
from troupe.clients.rollout import RolloutClient
from troupe.errors import TroupeError, VersionNotLoadedError, WeightsRejectedError
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.deadlines import moving_s, push_s, startup_s
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.push import Push, is_among, life_of, serves
from troupe_trainer.publish.push_events import PushResult
from troupe_trainer.publish.transport import Send, Target, Transport

_log = get_logger(__name__)

CANARY_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Largest difference of a log probability between trainer and replica."""
IMAGE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""The same with an image: trainer and replica round a tower's layers at other places as well."""

Errors = list[TroupeError | None]
"""What went wrong with each replica of a call; None where nothing did."""

CALL_S = 60.0
"""Time of a call to a replica, beside the bytes that it may load."""


class Delivery:
    """Calls to the replicas of one job. ``connect`` makes the client of an address."""

    def __init__(
        self,
        spec: JobSpec,
        transport: Transport,
        connect: Callable[[str], RolloutClient],
        *,
        wakes: bool = False,
    ) -> None:
        self._spec = spec
        self._transport = transport
        self._connect = connect
        self._wakes = wakes
        self._clients: dict[str, RolloutClient] = {}

    @property
    def takes_live(self) -> bool:
        """Whether full weights are sent from the learner, without a file."""
        return self._transport.takes_live

    @property
    def via(self) -> str:
        """How bytes travel."""
        return self._transport.name

    async def begin(self, replicas: Sequence[Replica]) -> None:
        """Let the transport look at the replicas of full weights, before the first push."""
        await self._transport.begin([self._target(replica) for replica in replicas])

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def forget(self, export: Export) -> None:
        """Forget a version that will not be sent any more."""
        await self._transport.forget(export)
        if export.path is not None:
            export.path.unlink(missing_ok=True)

    async def stage(self, replicas: Sequence[Replica], push: Push) -> Errors:
        """Stage concurrently, in one session, on the replicas that do not serve it already."""
        if self._wakes and any(woken := await _gather(self._wake(r) for r in replicas)):
            return woken
        todo = [r for r in replicas if not serves(r, push.export)]
        push.staged |= {life_of(r) for r in replicas if r not in todo}
        if not todo:
            return [None] * len(replicas)
        targets = [self._target(replica) for replica in todo]
        manifest = push.export.manifest
        limit_s = push_s(self._spec, manifest.policy, manifest.size_bytes)
        try:
            async with self._transport.session(push.export, targets, timeout_s=limit_s) as send:
                results = await _gather(self._stage_one(r, push, send) for r in todo)
        except TroupeError as error:
            results: Errors = [error] * len(todo)
        errors = {life_of(r): error for r, error in zip(todo, results, strict=True)}
        return [errors.get(life_of(r)) for r in replicas]

    async def _wake(self, replica: Replica) -> None:
        """Have a replica that sleeps take the device back; one that is awake answers at once."""
        await self.client_of(replica).wake(timeout_s=startup_s(self._spec))

    async def _stage_one(self, replica: Replica, push: Push, send: Send) -> None:
        """Stage, compare digests, ask the canary."""
        export, life, result = push.export, life_of(replica), push.result(replica)
        manifest, target = export.manifest, self._target(replica)
        began = time.perf_counter()
        receipt = await send(target)
        result.stage_s = receipt.staged_s - receipt.received_s
        result.transfer_s = time.perf_counter() - began - result.stage_s
        result.tensor_digest = receipt.tensor_digest
        if receipt.tensor_digest != manifest.tensor_digest:
            raise WeightsRejectedError(
                f"it computed the tensor digest {receipt.tensor_digest}, and "
                f"{manifest.tensor_digest} was sent. {_still_served(export)}"
            )
        began = time.perf_counter()
        scores = await target.client.score(
            manifest.policy,
            manifest.policy_version,
            export.canary.token_ids,
            export.canary.images,
            timeout_s=_loading_s(push),
        )
        result.canary_s = time.perf_counter() - began
        self._check_canary(scores, export, result)
        push.staged.add(life)

    async def activate(self, replicas: Sequence[Replica], push: Push) -> Errors:
        """Activate; stage first on replicas that joined meanwhile."""
        late = [r for r in replicas if life_of(r) not in push.staged]
        errors = await self.stage(late, push) if late else []
        failed = {life_of(r): e for r, e in zip(late, errors, strict=True) if e is not None}
        ready = [r for r in replicas if life_of(r) not in failed]
        results = await _gather(self._activate_one(r, push) for r in ready)
        failed |= {life_of(r): e for r, e in zip(ready, results, strict=True) if e is not None}
        return [failed.get(life_of(r)) for r in replicas]

    async def _activate_one(self, replica: Replica, push: Push) -> None:
        manifest, life = push.export.manifest, life_of(replica)
        if self._wakes:
            await self._wake(replica)
        began = time.perf_counter()
        try:  # even if it serves already: the call carries this trainer's epoch
            await self._target(replica).client.activate(
                manifest.policy,
                manifest.policy_version,
                tensor_digest=manifest.tensor_digest,
                timeout_s=_loading_s(push),
            )
        except VersionNotLoadedError:  # its lease ended, or its engine was restarted
            push.staged.discard(life)
            raise
        push.result(replica).activate_s = time.perf_counter() - began
        push.active.add(life)

    def _check_canary(self, scores: list[float], export: Export, result: PushResult) -> None:
        """Note the largest difference; raises WeightsRejectedError beyond the tolerance."""
        policy = self._spec.policies[export.manifest.policy]
        limits = IMAGE_TOLERANCE if export.canary.images else CANARY_TOLERANCE
        limit = limits[policy.dtype]
        pairs = zip(scores, export.canary_logprobs, strict=False)
        apart = [abs(a - b) for a, b in pairs]
        # max() passes over a NaN that is not the first.
        worst = max(apart, default=math.inf) if all(map(math.isfinite, apart)) else math.inf
        result.canary_error, result.canary_limit = worst, limit
        if len(scores) != len(export.canary_logprobs) or not worst <= limit:
            raise WeightsRejectedError(
                f"its log probabilities of the canary differ from the trainer's by {worst:.3g} "
                f"(limit {limit:g}). The digests of all {len(export.manifest.tensors)} tensors are "
                "right, so no single tensor is at fault: it computes without them, or with another "
                "base model or number format; or the trainer computes this architecture otherwise "
                f"(docs/training.md). {_still_served(export)}"
            )

    async def discard(self, policy: str, version: int, members: Sequence[Replica]) -> None:
        """Best effort: a replica that does not answer has nothing to keep."""
        calls = (self._target(m).client.discard(policy, version, timeout_s=5.0) for m in members)
        for error in await _gather(calls):
            if error is not None:
                _log.warning("publisher.discard_failed", policy=policy, error=error.message)

    async def has_lost(self, replica: Replica, export: Export) -> bool:
        """Whether a replica that was given the version has it no more.

        A heartbeat without it may be older than the push: then the replica itself is asked, since
        to be sent the version again costs it the memory of one more. Without an answer it has not.
        """
        if is_among(replica.policies, export):
            return False
        try:
            status = await self.client_of(replica).status()
        except TroupeError as error:
            _log.warning("publisher.not_asked", replica=replica.replica_id, error=error.message)
            return False
        return not is_among(status.policies, export)

    def client_of(self, replica: Replica) -> RolloutClient:
        """The connection to a replica."""
        address = replica.address
        if address not in self._clients:
            self._clients[address] = self._connect(address)
        return self._clients[address]

    def _target(self, replica: Replica) -> Target:
        return Target(replica.replica_id, self.client_of(replica), replica.incarnation)


async def _gather(calls: Iterable[Coroutine[Any, Any, None]]) -> Errors:
    """Await all calls concurrently; TroupeErrors are returned, anything else is raised."""
    errors: Errors = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, TroupeError):
            raise result
        errors.append(result)
    return errors


def _loading_s(push: Push) -> float:
    """Time of a call that may have to load the version first, as SGLang does full weights."""
    return CALL_S + moving_s(push.export.manifest.size_bytes)


def _still_served(export: Export) -> str:
    if export.live is None:
        return "The old version serves on."
    return (
        "The old version serves on, except where the engine has room for one (SGLang): it serves "
        "none until the next push."
    )
