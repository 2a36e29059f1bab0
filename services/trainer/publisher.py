"""Brings every replica of a policy to one version: staged on all, then activated on all.

Level-triggered: it looks at who is there and does what is missing, so a replica that restarts or
joins late is brought to the current version by the same code. A version is active nowhere until
every replica has staged it, returned the right digest and answered the canary. Owns the calls to
replicas; never computes weights.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.trainer.export import Export
from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ROLLOUT, Replica
from troupe.clients.rollout import RolloutClient
from troupe.clients.router import RouterClient
from troupe.errors import JobFailedError, TroupeError, WeightsRejectedError
from troupe.spec.job import JobSpec
from troupe.telemetry.logging import get_logger

_log = get_logger(__name__)

POLL_S = 0.2
WATCH_S = 1.0
MAX_REJECTIONS = 3
CANARY_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Largest difference of a log probability between trainer and replica."""

Life = tuple[str, str]
"""One life of one replica: replica_id and incarnation."""


@dataclass(slots=True)
class _Round:
    """What is known of the replicas while one version is published."""

    export: Export
    staged: set[Life] = field(default_factory=set[Life])
    active: set[Life] = field(default_factory=set[Life])
    rejections: dict[Life, int] = field(default_factory=dict[Life, int])
    problem: str = ""


class Publisher:
    """Publishes the policies of one job. ``connect`` makes the client of an address."""

    def __init__(
        self,
        job_id: str,
        spec: JobSpec,
        router: RouterClient,
        *,
        connect: Callable[[str], RolloutClient] = RolloutClient,
    ) -> None:
        self._job_id = job_id
        self._spec = spec
        self._router = router
        self._connect = connect
        self._clients: dict[str, RolloutClient] = {}
        self._current: dict[str, _Round] = {}
        self._locks = {policy: asyncio.Lock() for policy in spec.policies}

    async def wait_for_replicas(self) -> None:
        """Until each policy has as many serving replicas as the spec asks for.

        Raises:
            JobFailedError: not so within limits.startup_timeout_s.
        """
        limit_s = self._spec.limits.startup_timeout_s
        deadline = time.monotonic() + limit_s
        while True:
            counts = {p: len(await self._members(p)) for p in self._spec.policies}
            lacking = {p: n for p, n in counts.items() if n < self._spec.policies[p].replicas}
            if not lacking:
                return
            if time.monotonic() > deadline:
                seen = ", ".join(
                    f"'{p}' has {n} of {self._spec.policies[p].replicas}"
                    for p, n in lacking.items()
                )
                raise JobFailedError(
                    f"Not enough rollout replicas registered within {limit_s:g} s: policy {seen}. "
                    "Look at the replicas' logs, or raise limits.startup_timeout_s."
                )
            await asyncio.sleep(POLL_S)

    async def publish(self, export: Export) -> None:
        """Make every replica of the policy serve ``export``; on failure the old version stays.

        Raises:
            JobFailedError: a replica refused the weights, answered the canary with other numbers,
                or could not be reached within limits.startup_timeout_s.
        """
        policy = export.manifest.policy
        round_ = _Round(export)
        async with self._locks[policy]:
            try:
                await self._until_all(policy, round_, round_.staged, self._stage)
            except JobFailedError:
                await self._discard(policy, export.manifest.policy_version)
                raise
            await self._until_all(policy, round_, round_.active, self._activate)
            previous = self._current.get(policy)
            self._current[policy] = round_
        if previous is not None:
            _forget_file(previous.export, export)

    async def forget_before(self, policy: str, version: int) -> None:
        """``version`` is committed: unload what is older than the one before it. Best effort."""
        if version > 1:
            await self._discard(policy, version - 2)

    async def watch(self) -> None:
        """Bring replicas that join or return to the current version, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            for policy, lock in self._locks.items():
                async with lock:
                    await self._catch_up(policy)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def _catch_up(self, policy: str) -> None:
        round_ = self._current.get(policy)
        if round_ is None:
            return
        try:
            members = await self._members(policy)
        except TroupeError:
            return
        for replica in members:
            if _life(replica) in round_.active and not _has_other(replica, round_.export):
                continue
            version = round_.export.manifest.policy_version
            try:
                await self._activate(replica, round_)
            except TroupeError as error:
                _log.warning(
                    "publisher.catch_up_failed",
                    replica=replica.replica_id,
                    policy=policy,
                    version=version,
                    error=error.message,
                )
            else:
                _log.info(
                    "publisher.caught_up",
                    replica=replica.replica_id,
                    policy=policy,
                    version=version,
                )

    async def _until_all(
        self,
        policy: str,
        round_: _Round,
        done: set[Life],
        act: Callable[[Replica, _Round], Awaitable[None]],
    ) -> None:
        """Repeat ``act`` on whoever is there and not ``done``, until nobody is left."""
        limit_s = self._spec.limits.startup_timeout_s
        deadline = time.monotonic() + limit_s
        while True:
            members = await self._members_or_none(policy, round_)
            todo = [m for m in members if _life(m) not in done]
            if members and not todo:
                return
            results = await asyncio.gather(*(act(m, round_) for m in todo), return_exceptions=True)
            problems = [
                self._judge(member, result, round_)
                for member, result in zip(todo, results, strict=True)
                if isinstance(result, BaseException)
            ]
            if todo and not problems:
                continue
            if time.monotonic() > deadline:
                version = round_.export.manifest.policy_version
                raise JobFailedError(
                    f"Version {version} of policy '{policy}' did not reach every replica within "
                    f"{limit_s:g} s: {round_.problem or 'no replica is registered'}. Look at the "
                    "replicas' logs, or raise limits.startup_timeout_s."
                )
            await asyncio.sleep(POLL_S)

    async def _members_or_none(self, policy: str, round_: _Round) -> list[Replica]:
        try:
            return await self._members(policy)
        except TroupeError as error:
            if not error.retryable:
                raise
            round_.problem = error.message
            return []

    def _judge(self, replica: Replica, error: BaseException, round_: _Round) -> str:
        """Note a failure that may pass; raise one that won't."""
        if not isinstance(error, TroupeError):
            raise error
        round_.problem = f"{replica.replica_id}: {error.message}"
        life = _life(replica)
        if isinstance(error, WeightsRejectedError):
            round_.rejections[life] = round_.rejections.get(life, 0) + 1
        is_final = not error.retryable and not isinstance(error, WeightsRejectedError)
        if is_final or round_.rejections.get(life, 0) >= MAX_REJECTIONS:
            manifest = round_.export.manifest
            raise JobFailedError(
                f"Replica {replica.replica_id} does not take version {manifest.policy_version} of "
                f"policy '{manifest.policy}': {error.message}"
            ) from error
        return round_.problem

    async def _stage(self, replica: Replica, round_: _Round) -> None:
        """Stage, compare digests, ask the canary."""
        export, life = round_.export, _life(replica)
        manifest = export.manifest
        if _serves(replica, export):
            round_.staged.add(life)
            return
        client = self._client(replica.address)
        timeout_s = self._spec.limits.startup_timeout_s
        digest = await client.update_weights(manifest, export.path, timeout_s)
        if digest != manifest.tensor_digest:
            raise WeightsRejectedError(
                f"it computed the tensor digest {digest}, and {manifest.tensor_digest} was sent. "
                "The old version serves on."
            )
        scores = await client.score(
            manifest.policy, manifest.policy_version, export.canary_token_ids
        )
        self._check_canary(scores, export)
        round_.staged.add(life)

    async def _activate(self, replica: Replica, round_: _Round) -> None:
        """Activate; stage first on a replica that came meanwhile."""
        manifest = round_.export.manifest
        life = _life(replica)
        if life not in round_.staged or life in round_.active:
            await self._stage(replica, round_)
        if not _serves(replica, round_.export):
            await self._client(replica.address).activate(manifest.policy, manifest.policy_version)
        round_.active.add(life)

    def _check_canary(self, scores: list[float], export: Export) -> None:
        policy = self._spec.policies[export.manifest.policy]
        limit = CANARY_TOLERANCE[policy.dtype]
        pairs = zip(scores, export.canary_logprobs, strict=False)
        worst = max((abs(a - b) for a, b in pairs), default=float("inf"))
        if len(scores) != len(export.canary_logprobs) or not worst <= limit:
            raise WeightsRejectedError(
                f"its log probabilities of the canary differ from the trainer's by {worst:.3g} "
                f"(limit {limit:g}). It runs another base model or number format; the old version "
                "serves on."
            )

    async def _discard(self, policy: str, version: int) -> None:
        """Discard on everyone; a replica that does not answer has nothing to keep."""
        try:
            members = await self._members(policy)
        except TroupeError:
            return
        calls = (self._client(m.address).discard(policy, version, timeout_s=5.0) for m in members)
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, TroupeError):
                _log.warning("publisher.discard_failed", policy=policy, error=result.message)

    async def _members(self, policy: str) -> list[Replica]:
        """Serving replicas of the policy; those that load or drain come later or not at all."""
        replicas = await self._router.list_replicas(self._job_id, REPLICA_KIND_ROLLOUT)
        return [r for r in replicas if r.is_serving and policy in {p.policy for p in r.policies}]

    def _client(self, address: str) -> RolloutClient:
        if address not in self._clients:
            self._clients[address] = self._connect(address)
        return self._clients[address]


def _life(replica: Replica) -> Life:
    return replica.replica_id, replica.incarnation


def _serves(replica: Replica, export: Export) -> bool:
    """The heartbeat says that it serves exactly these weights."""
    manifest = export.manifest
    return any(
        (p.policy, p.active_version, p.tensor_digest)
        == (manifest.policy, manifest.policy_version, manifest.tensor_digest)
        for p in replica.policies
    )


def _has_other(replica: Replica, export: Export) -> bool:
    """The heartbeat says that it no longer holds the version that it was given."""
    manifest = export.manifest
    return not any(
        p.policy == manifest.policy and manifest.policy_version in p.loaded_versions
        for p in replica.policies
    )


def _forget_file(old: Export, new: Export) -> None:
    if old.path != new.path:
        old.path.unlink(missing_ok=True)
