"""Takes every policy's version from the learners to the replicas and into the ledger.

Owns two rules. A trainer that resumed from a checkpoint never takes replicas back: it publishes
nothing until it has caught up with the committed version. A version number never stands for two
sets of weights: a version's file is on disk before it is committed and stays until the next one is,
so a trainer that learns a version again, and gets other bits, publishes the committed ones. Where
full weights are sent from the learner there is no such file: other bits than the committed ones end
this life of the job.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from troupe.durable import make_folder, sync
from troupe.errors import FencedError, JobFailedError, TroupeError
from troupe.runtime.faults import reached
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.weights import build_manifest
from troupe_trainer.checkpoint.export import Export, export_live, export_version, file_name
from troupe_trainer.control import TrainerProgress
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.publish.device import Device
from troupe_trainer.publish.publisher import Publisher
from troupe_trainer.publish.push import PushSeconds

_log = get_logger(__name__)


class Versions:
    """Publishes and commits versions of one job. Each ``epoch`` has its own folder."""

    def __init__(
        self,
        job_id: str,
        learners: Learners,
        publisher: Publisher,
        ledger: StepLedger,
        folder: Path,
        progress: TrainerProgress,
        device: Device,
        *,
        epoch: int = 0,
    ) -> None:
        self._job_id = job_id
        self._learners = learners
        self._publisher = publisher
        self._ledger = ledger
        self._folder = folder
        self._epoch = epoch
        self._epoch_folder = folder / str(epoch)
        self._progress = progress
        self._device = device

    async def publish(self, version: int) -> PushSeconds | None:
        """Make the learners' weights ``version`` of every policy; None where none was pushed.

        All policies are pushed at once, each committed as soon as its replicas serve it. Where one
        fails, the others are finished first.

        Raises:
            JobFailedError: it did not reach every replica, so it is not committed
                (``Publisher.publish`` says which version each then serves); or it was committed
                with weights that are lost.
            FencedError: another trainer has taken over.
        """
        committed, digests = await self._ledger.versions(), await self._ledger.digests()
        exports: dict[str, Export] = {}
        for policy, learner in self._learners.by_policy.items():
            if version < committed.get(policy, 0):
                _log.info("versions.catching_up", policy=policy, version=version)
                continue
            exports[policy] = await self._learners.on_thread(
                lambda source=learner: self._export(source, version)
            )
        await self._device.give()
        pushes = [
            self._push(export, digests[policy] if committed.get(policy) == version else None)
            for policy, export in exports.items()
        ]
        took = await _all(pushes)
        return PushSeconds.at_once(took) if took else None

    async def _push(self, export: Export, committed: str | None) -> PushSeconds:
        """Push and commit one policy's version; ``committed`` is the digest that it must have."""
        policy, version = export.manifest.policy, export.manifest.policy_version
        if committed is not None:
            export = await asyncio.to_thread(self._as_committed, export, committed)
        # A replica that does not know of a successor yet would accept the weights.
        await self._ledger.check()
        async with _on_disk(export.path):
            pushed = await self._publisher.publish(export)
        await self._ledger.commit_version(policy, version, export.manifest.tensor_digest)
        reached("trainer.version_committed", version)
        self._progress.policy_versions[policy] = version
        await self._publisher.forget_before(policy, version)
        await asyncio.to_thread(self._forget_predecessors, policy)
        return pushed

    def _export(self, learner: Learner, version: int) -> Export:
        """The version as the transport takes it; call it on the learners' thread."""
        if self._publisher.takes_live and not learner.model.is_lora:
            on_thread = self._learners.on_thread
            return export_live(
                learner.model, learner.policy, version, on_thread, job_id=self._job_id
            )
        dtype = self._publisher.adapter_dtype(learner.policy)
        return export_version(
            learner, version, self._epoch_folder, job_id=self._job_id, adapter_dtype=dtype
        )

    def _as_committed(self, export: Export, digest: str) -> Export:
        """``export``, or the committed file of its number if learning it again gave other bits."""
        manifest = export.manifest
        if manifest.tensor_digest == digest:
            return export
        make_folder(self._epoch_folder)
        target = self._epoch_folder / file_name(manifest.policy, manifest.policy_version)
        for path in sorted(self._folder.rglob(target.name)):
            with suppress(TroupeError, OSError):
                candidate = build_manifest(
                    path,
                    policy=manifest.policy,
                    policy_version=manifest.policy_version,
                    kind="lora" if manifest.kind == "lora" else "full",
                    adapter_config_json=manifest.adapter_config_json,
                    job_id=manifest.job_id,
                )
                if candidate.tensor_digest == digest:
                    _log.warning(
                        "versions.learnt_otherwise", policy=manifest.policy, path=str(path)
                    )
                    path.replace(target)
                    return replace(export, manifest=candidate, path=target, live=None)
        raise JobFailedError(
            f"Version {manifest.policy_version} of policy '{manifest.policy}' was committed with "
            f"the tensor digest {digest[:16]}; learning it again gave "
            f"{manifest.tensor_digest[:16]}, and {self._folder} does not have the committed file. "
            "Resume the job: its next life goes on from the last checkpoint."
        )

    def _forget_predecessors(self, policy: str) -> None:
        """Remove earlier trainers' versions of the policy, since this trainer's is committed."""
        for path in self._folder.rglob(f"{policy}-v*"):
            version = path.name.removeprefix(f"{policy}-v").partition(".")[0]
            if not version.isdecimal():  # of a policy whose name goes on after `-v`
                continue
            epoch = path.parent.name
            if path.parent == self._folder or (epoch.isdecimal() and int(epoch) < self._epoch):
                path.unlink(missing_ok=True)


async def _all(pushes: Sequence[Coroutine[Any, Any, PushSeconds]]) -> list[PushSeconds]:
    """Await every push, also when one fails; that a successor took over comes before all else."""
    took: list[PushSeconds] = []
    failures: list[BaseException] = []
    for result in await asyncio.gather(*pushes, return_exceptions=True):
        if isinstance(result, BaseException):
            failures.append(result)
        else:
            took.append(result)
    for failure in failures:
        _log.warning("versions.push_failed", error=str(failure) or repr(failure))
    if failures:
        raise min(failures, key=lambda error: not isinstance(error, FencedError))
    return took


@asynccontextmanager
async def _on_disk(path: Path | None) -> AsyncGenerator[None]:
    """Bring a file and its name to the disk meanwhile."""
    if path is None:
        yield
        return

    def work() -> None:
        sync(path)
        sync(path.parent)

    syncing = asyncio.create_task(asyncio.to_thread(work))
    try:
        yield
    finally:
        await asyncio.wait({syncing})
    syncing.result()
