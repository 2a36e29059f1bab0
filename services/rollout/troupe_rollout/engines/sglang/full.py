"""Full-weight versions of one policy: one of them is in the server, the others on disk.

Stock SGLang holds one set of weights, so a version is staged as a verified file and loaded when
somebody needs it: the canary that scores a staged version, or a request of the active one. A swap
waits for the requests of the other version, so none spans two. The trainer may die at any moment;
the next request brings the active version back. A version received by torch.distributed has no
file: it replaces the one before in the server, which is lost unless it has one. A push that breaks
off leaves no version, and the next one brings one. docs/rollout.md explains the traps.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Callable
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
        self._decided = asyncio.Event()
        self._decided.set()

    async def stage(self, weights: StagedWeights) -> str:
        """Keep a checked file; returns its tensors' digest. Serving continues undisturbed."""
        self._table.check_forward(weights.policy_version)
        await asyncio.to_thread(check_full, self._base, weights)
        name = self._work.new_name(self._policy, weights.policy_version)
        folder = self._work.path / name
        digest = await asyncio.to_thread(keep_full, self._base, weights, folder)
        if not self._table.holds(weights.policy_version, digest):
            self._table.stage(Snapshot(weights.policy_version, digest, name, folder))
            self._settle()
        elif (held := self._table.scoring(weights.policy_version)).folder is None:
            held.folder = folder
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return digest

    async def receive(self, weights: BroadcastWeights) -> str:
        """Take a version into the server's memory as the trainer broadcasts it.

        The old version is lost, unless it has a file: then its requests wait until this one is
        activated or discarded, and it is loaded again on any failure.
        """
        version, digest = weights.policy_version, digest_of_sums(weights.tensors)
        where = f"Weights of policy '{self._policy}' version {version}"
        self._table.check_forward(version)
        check_shapes(self._base, where, {t.name: t.shape for t in weights.tensors})
        self._membership.check(weights.group)
        name = self._work.new_name(self._policy, version)
        async with self._turn:
            snapshot = Snapshot(version, digest, name, None)
            try:
                await self._drained(snapshot)
            except TroupeError:
                await self._membership.leave(self._server.client())
                raise
            await self._swap(snapshot, weights)
            self._table.stage(snapshot)
            if self._table.active_version is not None:
                self._decided.clear()
        return digest

    async def activate(self, policy_version: int) -> None:
        """Load a staged version, if the canary has not done so, and serve it."""
        async with self.use(policy_version, staged_too=True):
            self._table.activate(policy_version)
            self._settle()

    async def discard(self, policy_version: int) -> None:
        """Forget a staged version; the active one is loaded again if the canary replaced it."""
        self._table.discard(policy_version)
        self._settle()
        active = self._table.active_version
        if active is not None and self._resident is not self._table.serving(active):
            with contextlib.suppress(TroupeError):  # the next request tries again, and reports why
                async with self.use(active, staged_too=False):
                    pass

    @contextlib.asynccontextmanager
    async def use(self, policy_version: int, *, staged_too: bool) -> AsyncGenerator[Snapshot]:
        """A version, in the server and unchanged until the block ends."""
        find = self._table.scoring if staged_too else self._table.serving
        while not await self._entered(find(policy_version), find):
            await self._until_decided(policy_version)
        snapshot = find(policy_version)
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
        self._settle()
        if (active := self._table.active_version) is not None:
            snapshot = self._table.serving(active)
            await self._load(client, snapshot)
            self._resident = snapshot

    def state(self) -> PolicyState:
        """What is held."""
        return self._table.state()

    async def close(self) -> None:
        """Do nothing: no task runs in the background."""

    async def _entered(self, wanted: Snapshot, find: Callable[[int], Snapshot]) -> bool:
        """Become a user of the version; False while another version must not be replaced."""
        async with self._turn:
            snapshot = find(wanted.policy_version)
            if self._resident is not snapshot:
                if not self._decided.is_set():
                    return False
                await self._drained(snapshot)
                await self._swap(snapshot)
            self._num_users += 1
            self._idle.clear()
            return True

    def _settle(self) -> None:
        """Let waiting requests go on once no staged version is in the server alone."""
        staged = self._table.state().staged_versions
        held = (self._table.scoring(version) for version in staged)
        if not any(snapshot.folder is None for snapshot in held):
            self._decided.set()

    async def _until_decided(self, policy_version: int) -> None:
        """Wait while a staged version exists only in the server: a swap would lose it."""
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await self._decided.wait()
        except TimeoutError as error:
            raise OverloadedError(
                f"Version {policy_version} of policy '{self._policy}' waits for a newer one to be "
                f"activated or dropped, for {self._drain_timeout_s:g} s. Try again; a trainer that "
                "is gone loses its lease (TROUPE_ROLLOUT_PUSH_LEASE_S)."
            ) from error

    async def _drained(self, snapshot: Snapshot) -> None:
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await self._idle.wait()
        except TimeoutError as error:
            raise OverloadedError(
                f"{self._num_users} requests of another version of policy '{self._policy}' did "
                f"not end within {self._drain_timeout_s:g} s, so version "
                f"{snapshot.policy_version} was not loaded. Try again, or raise "
                "TROUPE_ROLLOUT_SGLANG_DRAIN_TIMEOUT_S."
            ) from error

    async def _swap(self, snapshot: Snapshot, source: BroadcastWeights | None = None) -> None:
        """Replace the weights; on failure restore the previous ones."""
        client, before = self._server.client(), self._resident
        self._resident = None
        try:
            await self._load(client, snapshot, source)
        except BaseException as error:
            self._lose(before)
            if not isinstance(error, TroupeError) or (before is None and source is None):
                self._server.distrust(f"a swap of weights did not end ({error!r})")
                raise
            if before is not None and before.folder is not None:
                await self._go_back(client, before)
            raise
        self._resident = snapshot
        self._lose(before)

    def _lose(self, snapshot: Snapshot | None) -> None:
        """Forget a version that was in the server alone and is not any more."""
        if snapshot is not None and snapshot.folder is None and snapshot in self._table.held():
            _log.info("sglang.version_replaced", version=snapshot.policy_version)
            self._table.lose(snapshot.policy_version)

    async def _go_back(self, client: SglangClient, before: Snapshot) -> None:
        """Load the old version: SGLang's own rollback would read the new path again."""
        try:
            await self._load(client, before)
        except TroupeError as error:
            self._server.distrust(f"the old weights did not come back ({error.message})")
        else:
            self._resident = before

    async def _load(
        self, client: SglangClient, snapshot: Snapshot, source: BroadcastWeights | None = None
    ) -> None:
        """Raises WeightsRejectedError unless SGLang's memory changed to this version."""
        if source is not None:
            await self._membership.receive(client, source, snapshot.name)
        elif snapshot.folder is not None:
            await client.load_weights(snapshot.folder, snapshot.name)
        else:
            raise UnavailableError(
                f"Version {snapshot.policy_version} of policy '{self._policy}' was in the server "
                "alone and is lost; it must be sent again."
            )
        checksum = await client.checksum()
        for other in self._table.held():
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
