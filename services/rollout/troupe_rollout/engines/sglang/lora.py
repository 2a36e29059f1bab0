"""LoRA versions of one policy in a running server: a fresh adapter name for each version.

Owns loading, routing and unloading of the policy's adapters. A name is never requested after its
unload has begun: SGLang would silently load it again from where its file was.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from troupe.errors import DeadlineError, TroupeError, UnavailableError
from troupe.runtime.engines.engine import PolicyState, StagedWeights
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.policy import LoraSpec
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_rollout.engines.sglang.files import WorkFolder, check_adapter, keep_adapter
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.sglang.supervisor import Supervisor
from troupe_rollout.engines.versions import VersionTable

_log = get_logger(__name__)


@dataclass(eq=False, slots=True)
class Adapter:
    """One version in the server's memory and on disk."""

    policy_version: int
    tensor_digest: str
    name: str
    folder: Path
    num_users: int = 0
    is_dropped: bool = False


class LoraVersions:
    """Versions of one LoRA policy."""

    def __init__(
        self,
        policy: str,
        base: SglangModel,
        spec: LoraSpec,
        server: Supervisor,
        work: WorkFolder,
        *,
        max_versions: int,
    ) -> None:
        self._policy = policy
        self._base = base
        self._spec = spec
        self._server = server
        self._work = work
        self._table = VersionTable[Adapter](policy, max_versions, on_drop=self._drop)
        self._unloading: set[asyncio.Task[None]] = set()
        self._leftover: set[Adapter] = set()

    async def stage(self, weights: StagedWeights) -> str:
        """Load an adapter beside the serving ones; the digest of the tensors that it holds."""
        self._table.check_forward(weights.policy_version)
        await asyncio.to_thread(check_adapter, self._base, weights, self._spec)
        await self._unload_leftover()
        name = self._work.new_name(self._policy, weights.policy_version)
        adapter = Adapter(weights.policy_version, "", name, self._work.path / name)
        try:
            adapter.tensor_digest = await asyncio.to_thread(keep_adapter, weights, adapter.folder)
            if self._table.holds(adapter.policy_version, adapter.tensor_digest):
                shutil.rmtree(adapter.folder, ignore_errors=True)
                return adapter.tensor_digest
            await self._load(adapter)
        except BaseException:  # also a caller's deadline: whether it is loaded is then unknown
            self._leftover.add(adapter)
            raise
        self._table.stage(adapter)
        return adapter.tensor_digest

    async def _load(self, adapter: Adapter) -> None:
        """Load; raises UnavailableError when the server that loaded it is gone."""
        client, life = self._server.client(), self._server.num_starts
        try:
            await client.load_adapter(adapter.name, adapter.folder)
        except DeadlineError as error:  # its scheduler hangs, while its /health answers
            if self._server.num_starts == life:
                self._server.distrust(f"a load of an adapter did not end ({error.message})")
            raise
        if self._server.num_starts != life or not self._server.is_ready:
            raise UnavailableError(
                f"The SGLang server was restarted while version {adapter.policy_version} of policy "
                f"'{self._policy}' was loaded. Send it again."
            )

    async def activate(self, policy_version: int) -> None:
        """Route to a staged version."""
        self._table.activate(policy_version)
        await self.settle()

    def forget(self, policy_version: int) -> None:
        """Begin to unload a version, after its last request if it has any; a server that refuses
        in its sleep is asked again at the next push."""
        self._table.discard(policy_version)

    @contextlib.asynccontextmanager
    async def use(self, policy_version: int, *, staged_too: bool) -> AsyncGenerator[Adapter]:
        """The adapter of a version, kept in the server until the block ends."""
        find = self._table.scoring if staged_too else self._table.serving
        adapter = find(policy_version)
        adapter.num_users += 1
        try:
            yield adapter
        finally:
            adapter.num_users -= 1
            if adapter.is_dropped and adapter.num_users == 0:
                self._begin_unload(adapter)

    async def restore(self, client: SglangClient) -> None:
        """Load everything that is held into a fresh server."""
        present = await client.adapters()
        for adapter in self._table.held():
            if adapter.name not in present:
                await client.load_adapter(adapter.name, adapter.folder)

    def state(self) -> PolicyState:
        """What is held."""
        return self._table.state()

    async def close(self) -> None:
        """Stop unloading; the server is ending."""
        for task in self._unloading:
            task.cancel()
        await asyncio.gather(*self._unloading, return_exceptions=True)

    def _drop(self, adapter: Adapter) -> None:
        adapter.is_dropped = True
        if adapter.num_users == 0:
            self._begin_unload(adapter)

    def _begin_unload(self, adapter: Adapter) -> None:
        task = asyncio.get_running_loop().create_task(self._unload(adapter))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _unload(self, adapter: Adapter) -> None:
        """Free the adapter here and in the server; a failure is retried at the next push."""
        try:
            await self._server.client().unload_adapter(adapter.name)
        except TroupeError as error:
            _log.warning("sglang.unload_failed", adapter=adapter.name, error=error.message)
            self._leftover.add(adapter)
        else:
            self._leftover.discard(adapter)
            shutil.rmtree(adapter.folder, ignore_errors=True)

    async def settle(self) -> None:
        """Wait for unloads that no request delays, so that memory is free when a push returns."""
        if self._unloading:
            await asyncio.wait(set(self._unloading))

    async def _unload_leftover(self) -> None:
        for adapter in list(self._leftover):  # each is kept until it is gone: pushes are cancelled
            await self._unload(adapter)
