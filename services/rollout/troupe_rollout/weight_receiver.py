"""Brings new weights into the engine: receives them by any transport, stages and leases them.

Owns the lease: a staged version that is neither activated nor discarded, because its trainer died,
is dropped, so that the old version keeps serving without intervention. Also owns the fence: a
superseded trainer can change nothing. Never decides which version serves.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.errors import (
    ConflictError,
    FencedError,
    InvalidArgumentError,
    TroupeError,
    VersionNotLoadedError,
    WeightsRejectedError,
)
from troupe.runtime.engines.broadcast import BroadcastReceiver, BroadcastWeights
from troupe.runtime.engines.engine import Engine, SleepingEngine, StagedWeights
from troupe.runtime.faults import reached
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.weights import sums_in, verify_file
from troupe.runtime.weights.group import BUCKET_BYTES, WeightGroup
from troupe_rollout.staging import StagingArea, Upload

_log = get_logger(__name__)

Key = tuple[str, int]
"""A policy and a version of it."""


class WeightReceiver:
    """Stages, activates and discards in one engine: one change of a policy at a time.

    The highest trainer epoch seen, from a call or from the router, is kept for the process's life,
    and changes under a lower one are refused. It is kept for the job's one trainer, or for each
    policy's trainer. A process serves one job.
    """

    def __init__(self, engine: Engine, staging: StagingArea, *, lease_s: float) -> None:
        self._engine = engine
        self._staging = staging
        self._lease_s = lease_s
        self.job_id = ""
        """Whose the series are that this counts in."""
        self._leases: dict[Key, asyncio.Task[None]] = {}
        self._has_own_trainers = False
        self._epochs: defaultdict[str, int] = defaultdict(int)
        self._staged: dict[Key, str] = {}
        self._loaded: dict[Key, str] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def update(
        self, requests: AsyncIterator[pb.UpdateWeightsRequest], *, timeout_s: float
    ) -> pb.UpdateWeightsResponse:
        """Receive and stage one version.

        Raises:
            WeightsRejectedError: the engine's tensors differ from those announced.
            FencedError: the sender has been superseded.
        """
        began = time.monotonic()
        async with self._staging.receive(requests, self._admit) as upload:
            received_s = time.monotonic() - began
            async with self._turn(upload.manifest.policy, upload.epoch):
                digest = await self._stage(upload, timeout_s)
                await self._keep_if_current(upload)
        reached("rollout.weights_staged", upload.manifest.policy_version)
        staged_s = time.monotonic() - began
        manifest = upload.manifest
        if upload.path is None:
            received_s = staged_s  # receiving and loading were one
        metrics.ROLLOUT_WEIGHTS_BYTES.labels(self.job_id, manifest.policy).inc(manifest.size_bytes)
        metrics.ROLLOUT_WEIGHTS_SECONDS.labels(self.job_id, "receive").observe(received_s)
        metrics.ROLLOUT_WEIGHTS_SECONDS.labels(self.job_id, "stage").observe(staged_s - received_s)
        return pb.UpdateWeightsResponse(
            tensor_digest=digest,
            staged_s=staged_s,
            received_s=received_s,
        )

    async def activate(
        self, policy: str, policy_version: int, *, epoch: int = 0, tensor_digest: str = ""
    ) -> None:
        """Serve a staged version.

        Raises:
            VersionNotLoadedError: it is not loaded, or has another digest than the one given.
            FencedError: the caller has been superseded.
        """
        began = time.monotonic()
        key = (policy, policy_version)
        async with self._turn(policy, epoch):
            self._check_meant(key, tensor_digest)
            await self._engine.activate(policy, policy_version)
            reached("rollout.activated", policy_version)
            self._release(key)
            self._note_loaded(key)
        activated_s = time.monotonic() - began
        metrics.ROLLOUT_WEIGHTS_SECONDS.labels(self.job_id, "activate").observe(activated_s)
        metrics.ROLLOUT_VERSION.labels(self.job_id, policy).set(policy_version)

    async def discard(self, policy: str, policy_version: int, *, epoch: int = 0) -> None:
        """Drop a staged or an old version; raises FencedError as ``activate`` does."""
        async with self._turn(policy, epoch):
            self._release((policy, policy_version))
            self._staged.pop((policy, policy_version), None)
            await self._engine.discard(policy, policy_version)

    async def sleep(self, *, epoch: int = 0) -> None:
        """Give the device to the trainer; raises FencedError as ``activate`` does."""
        self._admit("", epoch)
        await self._sleeping_engine().sleep()

    async def wake(self, *, epoch: int = 0) -> None:
        """Take the device back; raises FencedError as ``activate`` does."""
        self._admit("", epoch)
        await self._sleeping_engine().wake()

    def refuse_before(self, epoch: int) -> None:
        """Refuse changes by trainers with an earlier epoch than this one."""
        self._epochs[""] = max(self._epochs[""], epoch)

    def refuse_before_each(self, epochs: Mapping[str, int]) -> None:
        """Refuse changes to each policy by trainers earlier than its epoch here."""
        self._has_own_trainers = True
        for policy, epoch in epochs.items():
            self._epochs[policy] = max(self._epochs[policy], epoch)

    def renew(self, policy: str, policy_version: int) -> None:
        """Renew the lease of a staged version that its trainer still works on."""
        if (policy, policy_version) in self._leases:
            self._hold((policy, policy_version))

    async def close(self) -> None:
        """Forget all leases; the engine is ending."""
        leases = list(self._leases.values())
        self._leases.clear()
        for lease in leases:
            lease.cancel()
        await asyncio.gather(*leases, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _turn(self, policy: str, epoch: int) -> AsyncGenerator[None]:
        """Exclusive access to the policy, refused to superseded trainers."""
        self._admit(policy, epoch)
        async with self._turns[policy]:
            self._refuse_older(policy, epoch)
            yield

    def _admit(self, policy: str, epoch: int) -> None:
        """Record an epoch before its turn, so that the call in progress sees a successor."""
        self._refuse_older(policy, epoch)
        self._epochs[self._trainer_of(policy)] = epoch

    def _refuse_older(self, policy: str, epoch: int) -> None:
        newest = self._epochs[self._trainer_of(policy)]
        if epoch < newest:
            raise FencedError(
                f"A trainer with epoch {newest} has taken over policy '{policy}' from the one with "
                f"epoch {epoch}. Stop the old trainer; nothing was changed here."
            )

    def _sleeping_engine(self) -> SleepingEngine:
        if not isinstance(self._engine, SleepingEngine):
            raise InvalidArgumentError(
                f"Engine '{self._engine.name}' takes no turns on a device. Unset "
                "TROUPE_TRAINER_COLOCATED, or use engine sglang."
            )
        return self._engine

    def _trainer_of(self, policy: str) -> str:
        """The trainer whose epochs count for ``policy``: "" is the job's one trainer."""
        return policy if self._has_own_trainers else ""

    async def _keep_if_current(self, upload: Upload) -> None:
        """Keep what was staged, unless a successor called meanwhile: then it is dropped."""
        key = (upload.manifest.policy, upload.manifest.policy_version)
        try:
            self._refuse_older(key[0], upload.epoch)
        except FencedError:
            self._staged.pop(key, None)
            with contextlib.suppress(ConflictError):
                await self._engine.discard(*key)
            raise
        self._staged[key] = upload.manifest.tensor_digest
        self._hold(key)

    def _check_meant(self, key: Key, tensor_digest: str) -> None:
        """Compare digests: the number may name an earlier trainer's weights, since learnt again."""
        held = self._staged.get(key) or self._loaded.get(key)
        if tensor_digest and held is not None and held != tensor_digest:
            raise VersionNotLoadedError(
                f"Version {key[1]} of policy '{key[0]}' is here with the digest {held[:16]}; the "
                f"stage with the digest {tensor_digest[:16]} was dropped. Stage it again."
            )

    def _note_loaded(self, key: Key) -> None:
        """Mark a staged version as loaded; forget versions that the engine unloaded."""
        if (digest := self._staged.pop(key, None)) is not None:
            self._loaded[key] = digest
        present = {(p.policy, v) for p in self._engine.policies() for v in p.loaded_versions}
        self._loaded = {k: digest for k, digest in self._loaded.items() if k in present}

    async def _stage(self, upload: Upload, timeout_s: float) -> str:
        manifest = upload.manifest
        if upload.broadcast is not None:
            return await self._receive(manifest, upload.broadcast, timeout_s)
        assert upload.path is not None
        staged = StagedWeights(
            policy=manifest.policy,
            policy_version=manifest.policy_version,
            kind="lora" if manifest.kind == "lora" else "full",
            path=upload.path,
            adapter_config_json=manifest.adapter_config_json,
            announced={tensor.name: tensor.digest for tensor in manifest.tensors},
        )
        digest = await self._engine.stage(staged)
        if digest != manifest.tensor_digest:
            with contextlib.suppress(ConflictError):
                await self._engine.discard(manifest.policy, manifest.policy_version)
            await asyncio.to_thread(
                verify_file, upload.path, manifest
            )  # names the tensor, if it can
            raise WeightsRejectedError(
                f"Weights of policy '{manifest.policy}' version {manifest.policy_version} are "
                f"refused: the engine holds tensors with digest {digest} and the manifest says "
                f"{manifest.tensor_digest}. The serving version is unchanged; send them again."
            )
        return digest

    async def _receive(
        self, manifest: WeightsManifest, source: pb.BroadcastWeights, timeout_s: float
    ) -> str:
        engine = self._engine
        if manifest.kind != "full" or not isinstance(engine, BroadcastReceiver):
            what = "An adapter" if manifest.kind == "lora" else f"Weights for engine {engine.name}"
            raise InvalidArgumentError(
                f"{what} can't come by torch.distributed; only full weights can, to an engine that "
                "joins groups. Send the file (TROUPE_TRAINER_WEIGHTS_VIA=grpc or store)."
            )
        group = WeightGroup(
            source.host,
            source.port,
            source.group,
            source.world_size,
            source.rank_offset,
            source.backend,
            source.is_formed,
        )
        return await engine.receive(
            BroadcastWeights(
                manifest.policy,
                manifest.policy_version,
                sums_in(manifest),
                group,
                min(timeout_s, self._lease_s),
                source.bucket_bytes or BUCKET_BYTES,
            )
        )

    def _hold(self, key: Key) -> None:
        """Begin or renew the lease of a version that is staged."""
        self._release(key)
        staged = {p.policy: p.staged_versions for p in self._engine.policies()}
        if key[1] in staged.get(key[0], ()):
            self._leases[key] = asyncio.get_running_loop().create_task(self._expire(key))

    def _release(self, key: Key) -> None:
        if (lease := self._leases.pop(key, None)) is not None:
            lease.cancel()

    async def _expire(self, key: Key) -> None:
        await asyncio.sleep(self._lease_s)
        async with self._turns[key[0]]:
            self._leases.pop(key, None)
            self._staged.pop(key, None)
            _log.warning("weights.lease_expired", policy=key[0], version=key[1])
            try:
                await self._engine.discard(*key)
            except TroupeError as error:
                _log.warning("weights.discard_failed", policy=key[0], error=error.message)
