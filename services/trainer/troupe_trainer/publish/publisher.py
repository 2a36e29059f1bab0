"""Brings every replica of a policy to one version: staged on all, then activated on all.

Level-triggered: it compares the present replicas with the target and does what is missing, so the
same code brings a restarted or late replica to the current version. A version is active nowhere
until every replica has staged it, returned the right digest and answered the canary. Owns the order
of operations and what a failure means; `delivery` makes the calls, and `transport` moves the bytes.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ROLLOUT, Replica
from troupe.clients.rollout import RolloutClient
from troupe.clients.router import RouterClient
from troupe.errors import (
    FencedError,
    JobFailedError,
    TroupeError,
    WeightsRejectedError,
)
from troupe.runtime.faults import reached
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.deadlines import push_s, startup_s
from troupe.spec.job import JobSpec
from troupe.spec.policy import LoraSpec
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.learn.patience import Ask, Patience, nobody_says
from troupe_trainer.publish.delivery import Delivery, Errors
from troupe_trainer.publish.push import Life, Push, PushSeconds, life_of
from troupe_trainer.publish.push_events import NoPushListener, PushListener, push_refusal
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Transport

_log = get_logger(__name__)

POLL_S = 0.2
WATCH_S = 1.0
MAX_REJECTIONS = 3
"""How often one life of a replica may reject a version before the job fails.

It rejects by an error, another tensor digest or a canary outside the tolerance. Any other retryable
error is retried for ``deadlines.push_s``. A replica that came late is left alone until the next
version."""

Act = Callable[[Sequence[Replica], Push], Awaitable[Errors]]
"""One attempt on some replicas; what went wrong with each of them."""


class Publisher:
    """Publishes policies of one job. ``connect`` makes the client of an address.

    ``policy`` is the only one published if the trainer learns no other.
    """

    def __init__(
        self,
        job_id: str,
        spec: JobSpec,
        router: RouterClient,
        *,
        connect: Callable[[str], RolloutClient] = RolloutClient,
        transport: Transport | None = None,
        listener: PushListener | None = None,
        policy: str = "",
        wakes: bool = False,
        conducting: Ask = nobody_says,
    ) -> None:
        """``wakes``: replicas sleep until they are sent weights; see `device`. ``conducting``: what
        the job's conductor says of its time."""
        self._conducting = conducting
        self._job_id = job_id
        self._spec = spec
        self._router = router
        self._delivery = Delivery(spec, transport or StreamTransport(), connect, wakes=wakes)
        self._is_held = False
        self._listener = listener or NoPushListener()
        self._current: dict[str, Push] = {}
        self._adapter_dtypes: dict[str, str] = {}
        self._replaced: defaultdict[str, list[Export]] = defaultdict(list)
        policies = [policy] if policy else list(spec.policies)
        self._locks = {name: asyncio.Lock() for name in policies}

    def patience(self, limit_s: float) -> Patience:
        """A wait for replicas that begins now."""
        return Patience(limit_s, self._conducting)

    async def wait_for_replicas(self) -> None:
        """Wait until each of its policies has as many serving replicas as the spec asks for.

        They are then asked for ``adapter_dtype``, and whether they join a broadcast.

        Raises:
            JobFailedError: too few replicas within ``deadlines.startup_s``.
        """
        limit_s = startup_s(self._spec)
        patience = self.patience(limit_s)
        while True:
            counts = {p: len(await self._members(p)) for p in self._locks}
            lacking = {p: n for p, n in counts.items() if n < self._spec.policies[p].replicas}
            if not lacking and await self._ask():
                return
            if await patience.is_over():
                shortfall = ", ".join(
                    f"'{p}' has {n} of {self._spec.policies[p].replicas}"
                    for p, n in lacking.items()
                )
                shortfall = shortfall or "has one that does not answer GetStatus"
                raise JobFailedError(
                    f"Not enough rollout replicas registered within {limit_s:g} s: policy "
                    f"{shortfall}. Look at the replicas' logs, or raise limits.startup_timeout_s."
                )
            await asyncio.sleep(POLL_S)

    @property
    def takes_live(self) -> bool:
        """Whether full weights are sent from the learner, without a file."""
        return self._delivery.takes_live

    def adapter_dtype(self, policy: str) -> str:
        """The format to send an adapter in: the one that every engine would convert it to."""
        return self._adapter_dtypes.get(policy, "float32")

    async def publish(self, export: Export) -> PushSeconds:
        """Make every replica of the policy serve ``export``: stage on all, then activate on all.

        Staging and activation each repeat what may succeed later. If staging fails for good, the
        version is discarded everywhere, and every replica that still holds the old one serves it.
        If activation fails for good on one replica, others may serve the new version already, and
        nothing undoes that. The caller has not committed it then; a resumed job publishes the same
        version again.

        Raises:
            JobFailedError: a replica failed with an error that no repetition cures, rejected the
                version ``MAX_REJECTIONS`` times (digest or canary differ), or did not succeed
                within ``deadlines.push_s``.
            FencedError: a replica now takes its weights from another trainer; nothing is discarded.
        """
        policy = export.manifest.policy
        push, began = Push(export), time.monotonic()
        async with self._locks[policy]:
            previous = self._current.get(policy)
            try:
                await self._until_all(policy, push, push.staged, self._delivery.stage)
            except JobFailedError:
                await self._discard(policy, export.manifest.policy_version)
                raise
            staged = time.monotonic()
            reached("trainer.weights_staged", export.manifest.policy_version)
            await self._until_all(policy, push, push.active, self._delivery.activate)
            took = PushSeconds(staged - began, time.monotonic() - staged)
            reached("trainer.weights_active", export.manifest.policy_version)
            self._current[policy] = push
        await self._listener.published(export, self._delivery.via, [*push.results.values()])
        if previous is not None and previous.export.path != export.path:
            self._replaced[policy].append(previous.export)
        return took

    async def forget_before(self, policy: str, version: int) -> None:
        """``version`` is committed: unload what nobody asks for any more. Best effort.

        Strictly on-policy that is the version before it, whose round is over; with staleness that
        one is still played. Earlier versions' files go only now: one of them was the committed one.
        """
        while self._replaced[policy]:
            await self._delivery.forget(self._replaced[policy].pop())
        newest = version - (2 if self._spec.max_staleness else 1)
        # The one before that again: a replica that was late may have had it as its active one.
        await self._discard(policy, *range(max(0, newest - 1), newest + 1))

    async def hold(self) -> None:
        """Send no replica anything until ``go_on``; returns when nothing is being sent."""
        self._is_held = True
        for lock in self._locks.values():
            async with lock:
                pass

    def go_on(self) -> None:
        """End ``hold``."""
        self._is_held = False

    async def holders(self) -> list[Replica]:
        """The replicas that hold one of its policies, also those whose server is down now."""
        replicas = await self._router.list_replicas(self._job_id, REPLICA_KIND_ROLLOUT)
        return [r for r in replicas if any(p.policy in self._locks for p in r.policies)]

    def client_of(self, replica: Replica) -> RolloutClient:
        """The connection to a replica."""
        return self._delivery.client_of(replica)

    async def watch(self) -> None:
        """Bring replicas that join or return to the current version, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            for policy, lock in self._locks.items():
                async with lock:
                    if not self._is_held:
                        await self._catch_up(policy)

    async def close(self) -> None:
        """Close all connections."""
        await self._delivery.close()

    async def _ask(self) -> bool:
        """Ask the replicas what decides how weights are sent; False: one is silent."""
        try:
            await self._ask_groups()
        except TroupeError as error:
            if not error.retryable:
                raise
            return False
        return await self._ask_dtypes()

    async def _ask_groups(self) -> None:
        """Ask the replicas of full weights whether they join a broadcast."""
        full = [p for p in self._locks if not isinstance(self._spec.policies[p].train, LoraSpec)]
        if full and self.takes_live:
            members = [member for policy in full for member in await self._members(policy)]
            await self._delivery.begin(members)

    async def _ask_dtypes(self) -> bool:
        """Ask in which number format adapters of bfloat16 are computed; False: one is silent."""
        for policy in self._locks:
            spec = self._spec.policies[policy]
            if isinstance(spec.train, LoraSpec) and spec.dtype == "bfloat16":
                try:
                    clients = [self.client_of(member) for member in await self._members(policy)]
                    statuses = await asyncio.gather(*(client.status() for client in clients))
                except TroupeError as error:
                    if not error.retryable:
                        raise
                    return False
                is_common = {status.adapter_dtype for status in statuses} == {"bfloat16"}
                self._adapter_dtypes[policy] = "bfloat16" if is_common else "float32"
        return True

    async def _catch_up(self, policy: str) -> None:
        push = self._current.get(policy)
        if push is None:
            return
        try:
            members = await self._members(policy)
        except TroupeError:
            return
        for replica in members:
            life = life_of(replica)
            if push.rejections.get(life, 0) >= MAX_REJECTIONS:
                continue
            if life in push.active and not await self._delivery.has_lost(replica, push.export):
                continue
            push.staged.discard(life)
            (error,) = await self._delivery.activate([replica], push)
            words = {"replica": replica.replica_id, "policy": policy}
            words["version"] = str(push.export.manifest.policy_version)
            if isinstance(error, FencedError):
                raise error
            if error is not None:
                _log.warning("publisher.catch_up_failed", **words, error=error.message)
                push.rejections[life] = push.rejections.get(life, 0) + (not error.retryable)
                if push.rejections[life] == MAX_REJECTIONS:
                    refusal = push_refusal(push.result(replica), error)
                    await self._listener.refused(push.export, self._delivery.via, refusal)
                continue
            _log.info("publisher.caught_up", **words)
            result = push.result(replica)
            await self._listener.caught_up(push.export, self._delivery.via, result)

    async def _until_all(self, policy: str, push: Push, done: set[Life], act: Act) -> None:
        """Repeat ``act`` on the present replicas that are not ``done``, until none is left.

        The time in which no router answers does not count: replicas come and go unseen.
        """
        limit_s = push_s(self._spec, policy, push.export.manifest.size_bytes)
        patience = self.patience(limit_s)
        while True:
            asked_at = time.monotonic()
            members = await self._members_or_none(policy, push)
            if members is None:
                await asyncio.sleep(POLL_S)
                patience.leave_out(time.monotonic() - asked_at)
                continue
            todo = [m for m in members if life_of(m) not in done]
            if members and not todo:
                return
            errors = await act(todo, push) if todo else []
            for member, error in zip(todo, errors, strict=True):
                if error is not None:
                    await self._note_failure(member, error, push)
            if todo and not any(errors):
                continue
            if await patience.is_over():
                version = push.export.manifest.policy_version
                raise JobFailedError(
                    f"Version {version} of policy '{policy}' did not reach every replica within "
                    f"{limit_s:g} s: {push.problem or 'no replica is registered'}. Look at the "
                    "replicas' logs, or raise limits.startup_timeout_s."
                )
            await asyncio.sleep(POLL_S)

    async def _members_or_none(self, policy: str, push: Push) -> list[Replica] | None:
        try:
            return await self._members(policy)
        except TroupeError as error:
            if not error.retryable:
                raise
            push.problem = error.message
            return None

    async def _note_failure(self, replica: Replica, error: TroupeError, push: Push) -> None:
        """Record a failure that may pass, and count rejections; raise any other as the job's."""
        if isinstance(error, FencedError):
            raise error
        push.problem = f"{replica.replica_id}: {error.message}"
        life = life_of(replica)
        is_rejection = isinstance(error, WeightsRejectedError)
        if is_rejection:
            push.rejections[life] = push.rejections.get(life, 0) + 1
        is_final = not error.retryable and not is_rejection
        if is_final or push.rejections.get(life, 0) >= MAX_REJECTIONS:
            manifest = push.export.manifest
            refusal = push_refusal(push.result(replica), error)
            await self._listener.refused(push.export, self._delivery.via, refusal)
            raise JobFailedError(
                f"Replica {replica.replica_id} does not take version {manifest.policy_version} of "
                f"policy '{manifest.policy}': {error.message}",
                pointer=error.pointer,
            ) from error

    async def _discard(self, policy: str, *versions: int) -> None:
        try:
            members = await self._members(policy) if versions else []
        except TroupeError:
            return
        for version in versions:
            await self._delivery.discard(policy, version, members)

    async def _members(self, policy: str) -> list[Replica]:
        """Serving replicas of the policy; loading and draining ones are left out."""
        replicas = await self._router.list_replicas(self._job_id, REPLICA_KIND_ROLLOUT)
        return [r for r in replicas if r.is_serving and policy in {p.policy for p in r.policies}]
