"""Full-weight versions of one policy: one of them is in the server, the others on disk.

Stock SGLang holds one set of weights, so a version is staged as a verified file and loaded when
somebody needs it: the canary that scores a staged version, or a request of the active one. A swap
waits for the requests of the other version, so none spans two. The trainer may die at any moment;
the next request brings the active version back. A version received by torch.distributed has no
file and replaces everything that is held, the active version too: until it is activated, or where
the push breaks off, the replica has no version to serve. docs/rollout.md explains the traps.
"""

import asyncio
import contextlib
import math
import shutil
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

from troupe.errors import OverloadedError, TroupeError, UnavailableError, WeightsRejectedError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.engines.engine import PolicyState, StagedWeights
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.weights import digest_of_sums
from troupe_rollout.engines.sglang.broadcast import SglangMembership
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_rollout.engines.sglang.files import WorkFolder, check_full, check_shapes, keep_full
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.sglang.supervisor import Supervisor
from troupe_rollout.engines.versions import VersionTable

BROADCAST_DRAIN_S = 30.0
"""Shorter than a trainer waits for a member that is silent: what is under way ends, or the old
version is kept."""

_log = get_logger(__name__)


@dataclass(eq=False, slots=True)
class Snapshot:
    """One version; ``folder`` is None while only the server has it.

    ``checksum`` is SGLang's own over what it loaded; empty until then.
    """

    policy_version: int
    tensor_digest: str
    name: str
    folder: Path | None
    checksum: str = ""


class FullVersions:
    """Versions of one full-weight policy, which has its own server."""

    def __init__(
        self,
        policy: str,
        base: SglangModel,
        server: Supervisor,
        work: WorkFolder,
        *,
        drain_timeout_s: float,
    ) -> None:
        self._policy = policy
        self._base = base
        self._server = server
        self._work = work
        self._drain_timeout_s = drain_timeout_s
        self._table = VersionTable[Snapshot](policy, 1, on_drop=self._drop)
        self._resident: Snapshot | None = None
        self._membership = SglangMembership()
        self._turn = asyncio.Lock()
        self._num_users = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def stage(self, weights: StagedWeights) -> str:
        """Keep a checked file; returns its tensors' digest. Serving continues undisturbed."""
        self._table.check_forward(weights.policy_version)
        await asyncio.to_thread(check_full, self._base, weights)
        name = self._work.new_name(self._policy, weights.policy_version)
        folder = self._work.path / name
        keeping = asyncio.ensure_future(asyncio.to_thread(keep_full, self._base, weights, folder))
        try:
            digest = await asyncio.shield(keeping)
        except asyncio.CancelledError:  # its thread goes on, and what it writes is nobody's
            keeping.add_done_callback(lambda _: shutil.rmtree(folder, ignore_errors=True))
            raise
        if self._table.holds(weights.policy_version, digest):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self._table.stage(Snapshot(weights.policy_version, digest, name, folder))
        return digest

    async def receive(self, weights: BroadcastWeights) -> str:
        """Take a version into the server's memory as the trainer broadcasts it.

        It replaces every version that is held. Where it does not arrive whole, none is held and
        no request is answered until a version is sent again.
        """
        version, digest = weights.policy_version, digest_of_sums(weights.tensors)
        where = f"Weights of policy '{self._policy}' version {version}"
        self._table.check_forward(version)
        check_shapes(self._base, where, {t.name: t.shape for t in weights.tensors})
        self._membership.check(weights.group)
        snapshot = Snapshot(version, digest, self._work.new_name(self._policy, version), None)
        async with self._turn:
            client = self._server.client()
            try:
                await self._drained(snapshot, at_most_s=BROADCAST_DRAIN_S)
            except TroupeError:
                await self._membership.leave(client)
                raise
            try:
                async with asyncio.timeout(weights.timeout_s):
                    await self._replace(client, snapshot, weights)
            except TroupeError:
                raise
            except BaseException as error:  # late or cancelled: what the server does is unknown
                self._server.distrust(f"a broadcast of weights did not end ({error!r})")
                raise
        return digest

    async def _replace(
        self, client: SglangClient, snapshot: Snapshot, weights: BroadcastWeights
    ) -> None:
        await self._membership.enter(client, weights.group)
        before, self._resident = self._table.held(), None
        for held in before:
            self._table.lose(held.policy_version)
        await self._membership.take(client, weights, snapshot.name)
        await self._arrived(client, snapshot, before)
        self._resident = snapshot
        self._table.stage(snapshot)

    async def activate(self, policy_version: int) -> None:
        """Load a staged version, if the canary has not done so, and serve it."""
        async with self.use(policy_version, staged_too=True):
            self._table.activate(policy_version)

    def forget(self, policy_version: int) -> None:
        """Forget a staged version; the server holds it still if the canary loaded it."""
        self._table.discard(policy_version)

    async def settle(self) -> None:
        """Load the active version again if another one is in the server."""
        active = self._table.active_version
        if active is not None and self._resident is not self._table.serving(active):
            with contextlib.suppress(TroupeError):  # the next request tries again, and reports why
                async with self.use(active, staged_too=False):
                    pass

    @contextlib.asynccontextmanager
    async def use(self, policy_version: int, *, staged_too: bool) -> AsyncGenerator[Snapshot]:
        """A version, in the server and unchanged until the block ends."""
        find = self._table.scoring if staged_too else self._table.serving
        async with self._turn:
            snapshot = find(policy_version)
            if self._resident is not snapshot:
                await self._drained(snapshot)
                await self._swap_whole(snapshot)
            self._num_users += 1
            self._idle.clear()
        try:
            yield snapshot
        finally:
            self._num_users -= 1
            if self._num_users == 0:
                self._idle.set()

    async def restore(self, client: SglangClient) -> None:
        """Load the active version into a fresh server, which holds the base model.

        Versions that only the old server had are lost; the trainer's publisher sends them again.
        """
        self._resident = None
        self._membership.forget()
        for snapshot in self._table.held():
            if snapshot.folder is None:
                _log.warning("sglang.version_lost", version=snapshot.policy_version)
                self._table.lose(snapshot.policy_version)
        if (active := self._table.active_version) is not None:
            snapshot = self._table.serving(active)
            await self._load(client, snapshot)
            self._resident = snapshot

    def state(self) -> PolicyState:
        """What is held."""
        return self._table.state()

    async def close(self) -> None:
        """Do nothing: no task runs in the background."""

    async def _drained(self, snapshot: Snapshot, at_most_s: float = math.inf) -> None:
        limit_s = min(self._drain_timeout_s, at_most_s)
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError as error:
            raise OverloadedError(
                f"{self._num_users} requests of another version of policy '{self._policy}' did "
                f"not end within {limit_s:g} s, so version "
                f"{snapshot.policy_version} was not loaded. Try again, or raise "
                "TROUPE_ROLLOUT_SGLANG_DRAIN_TIMEOUT_S."
            ) from error

    async def _swap_whole(self, snapshot: Snapshot) -> None:
        """Swap to the end, whoever is cancelled meanwhile: half of one leaves unknown weights.

        It returns or raises only then, so all that its caller holds is held until the end.
        """
        swap = asyncio.create_task(self._swap(snapshot), name="sglang-swap")
        try:
            await asyncio.shield(swap)
        except asyncio.CancelledError:
            while not swap.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({swap})
            if not swap.cancelled() and (error := swap.exception()) is not None:
                _log.warning(
                    "sglang.swap_failed", version=snapshot.policy_version, error=str(error)
                )
            raise

    async def _swap(self, snapshot: Snapshot) -> None:
        """Replace the weights; on failure restore the previous ones."""
        client, before = self._server.client(), self._resident
        self._resident = None
        try:
            await self._load(client, snapshot)
        except BaseException as error:
            if not isinstance(error, TroupeError) or before is None:
                self._server.distrust(f"a swap of weights did not end ({error!r})")
                raise
            await self._go_back(client, before)
            raise
        self._resident = snapshot
        if before is not None and before.folder is None and before in self._table.held():
            self._table.lose(before.policy_version)

    async def _go_back(self, client: SglangClient, before: Snapshot) -> None:
        """Load the old version: SGLang's own rollback would read the new path again."""
        try:
            await self._load(client, before)
        except TroupeError as error:
            self._server.distrust(f"the old weights did not come back ({error.message})")
        else:
            self._resident = before

    async def _load(self, client: SglangClient, snapshot: Snapshot) -> None:
        """Raises WeightsRejectedError unless SGLang's memory changed to this version."""
        if snapshot.folder is None:
            raise UnavailableError(
                f"Version {snapshot.policy_version} of policy '{self._policy}' was in the server "
                "alone and is lost; it must be sent again."
            )
        await client.load_weights(snapshot.folder, snapshot.name)
        await self._arrived(client, snapshot, self._table.held())

    async def _arrived(
        self, client: SglangClient, snapshot: Snapshot, others: Sequence[Snapshot]
    ) -> None:
        """Note SGLang's checksum, after a comparison with those of ``others``."""
        checksum = await client.checksum()
        for other in others:
            same_tensors = other.tensor_digest == snapshot.tensor_digest
            if other.checksum and (other.checksum == checksum) != same_tensors:
                raise WeightsRejectedError(
                    f"After loading version {snapshot.policy_version} of policy '{self._policy}' "
                    f"SGLang's checksum is {'that' if not same_tensors else 'not that'} of version "
                    f"{other.policy_version}: the load did not arrive."
                )
        snapshot.checksum = checksum

    def _drop(self, snapshot: Snapshot) -> None:
        if snapshot.folder is not None:
            shutil.rmtree(snapshot.folder, ignore_errors=True)
