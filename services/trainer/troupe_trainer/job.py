"""Runs one job from its assignment to its end: builds the parts, runs the loop, exports.

Owns everything around the loop. Never serves requests and never registers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from troupe.clients.rollout import RolloutClient
from troupe.clients.router import RouterClient
from troupe.errors import InvalidArgumentError, JobFailedError, UnavailableError
from troupe.runtime.faults import reached
from troupe.runtime.serving.life import replica_name
from troupe.runtime.serving.memory import settle_heap
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.fencing import Fence
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient
from troupe.spec.job import JobSpec
from troupe.spec.policy import teacher_name
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.checkpoint.export import export_artifacts
from troupe_trainer.checkpoint.files import Checkpoints
from troupe_trainer.control import Control, StoppedError, TrainerProgress
from troupe_trainer.learn.collector import Collector
from troupe_trainer.learn.learners import Learners, resolve_device
from troupe_trainer.loop import Parts, train
from troupe_trainer.model.ranks.group import Ranks
from troupe_trainer.model.ranks.start import start
from troupe_trainer.publish import Publisher, make_transport
from troupe_trainer.publish.device import Device, SharedDevice, TrainersDevice
from troupe_trainer.publish.evaluations import Evaluations
from troupe_trainer.publish.push_events import PushEvents
from troupe_trainer.publish.versions import Versions
from troupe_trainer.settings import TrainerSettings

_log = get_logger(__name__)
_HEED_S = 1.0
_ADMIT_S = 60.0
"""A ledger that does not answer by then refuses a checkpoint, which is tried again."""


class TrainingJob:
    """One job in this process: all its policies, or ``policy`` alone."""

    def __init__(
        self,
        job_id: str,
        spec: JobSpec,
        run_dir: Path,
        settings: TrainerSettings,
        *,
        redis: Redis,
        router: RouterClient,
        progress: TrainerProgress,
        control: Control,
        policy: str = "",
    ) -> None:
        self._policy = policy
        self._ledger = StepLedger(redis, job_id)
        self._fence: Fence | None = None
        self._job_id = job_id
        self._spec = spec
        self._run_dir = run_dir
        self._settings = settings
        self._redis = redis
        self._publisher = Publisher(
            job_id,
            spec,
            router,
            connect=self._replica,
            transport=make_transport(settings, job_id, spec),
            listener=PushEvents(
                job_id,
                EventLog(redis, job_id, source="trainer"),
                [policy] if policy else spec.policies,
            ),
            policy=policy,
            wakes=settings.colocated,
            conducting=self._ledger.conducting,
        )
        self._progress = progress
        self._control = control

    async def run(self) -> None:
        """Train, export, then keep replicas at the last version until cancelled or stopped.

        Raises:
            JobFailedError, InvalidArgumentError: the job can't go on.
            StoppedError: it was asked to stop; its state is in a checkpoint.
            FencedError: another trainer has taken over.
        """
        check_writable(self._run_dir)
        # Before anything is read: from now on a predecessor that wakes up can change nothing.
        holder = replica_name(self._settings, "trainer")
        self._fence = await self._ledger.take("trainer", holder, policy=self._policy)
        self._progress.job_id, self._progress.num_steps = self._job_id, self._spec.steps
        self._progress.enter("load")
        settings = self._settings
        device, threads = resolve_device(settings.device), settings.torch_threads
        asked = self._spec.trainer.gpus
        started = await asyncio.to_thread(
            start,
            settings.ranks,
            device=device,
            threads=threads,
            asked=asked,
            shard_ranks=settings.shard_ranks,
        )
        try:
            await self._with(started.ranks, device)
        finally:
            await asyncio.to_thread(started.end)

    async def fail(self, reason: str) -> None:
        """Record in the ledger why the job failed; raises FencedError as ``run`` does."""
        await self._ledger.fail(reason)

    @property
    def _epoch(self) -> int:
        return self._fence.epoch if self._fence is not None else 0

    def _replica(self, address: str) -> RolloutClient:
        return RolloutClient(address, epoch=self._epoch)

    async def _with(self, ranks: Ranks, device: str) -> None:
        """Run the job on ``ranks``."""
        settings = self._settings
        shared = SharedDevice(self._spec, self._publisher) if settings.colocated else None
        if shared is not None:
            await shared.take()  # before anything is loaded onto it
        learners = await Learners.load(
            self._spec,
            self._run_dir,
            device=device,
            threads=settings.torch_threads,
            attention=settings.attention,
            ranks=ranks,
            policy=self._policy,
            held_bytes=settings.held_gradient_bytes,
            is_colocated=settings.colocated,
            is_compiled=settings.compiled,
        )
        if shared is not None:
            shared.of(learners)
        settle_heap()
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._publisher.watch())
                heeding = tasks.create_task(heed(ranks, self._ledger.fail))
                await self._train(learners, shared or TrainersDevice())
                self._progress.enter("done")
                await self._control.stopped()
                watch.cancel()
                heeding.cancel()
        except ExceptionGroup as group:
            raise _first(group) from group
        finally:
            learners.close()
            await self._publisher.close()

    async def _train(self, learners: Learners, device: Device) -> None:
        checkpointing = Checkpointing(
            self._spec,
            learners,
            Checkpoints(
                self._run_dir,
                self._spec,
                epoch=self._epoch,
                admit=admitting(self._ledger),
                policy=self._policy,
            ),
            EventLog(self._redis, self._job_id, source="trainer"),
        )
        first_step = await checkpointing.restore(with_all=await self._begins_a_life())
        self._progress.begin_step(first_step)
        await self._publisher.wait_for_replicas()
        parts = self._parts(learners, checkpointing, device, first_step)
        try:
            await train(self._spec, parts, first_step=first_step)
        except StoppedError as reason:
            await checkpointing.save()
            _log.info("job.stopped", reason=str(reason))
            raise
        finally:
            await checkpointing.close()
        self._progress.enter("export")
        await self._ledger.check()
        result = await self._export(learners)
        reached("trainer.exported")
        await self._ledger.set_result(result, policy=self._policy)

    async def _begins_a_life(self) -> bool:
        """Whether this policy's trainer must continue from the same step as the other policies'.

        Within a life it continues from its newest checkpoint: its groups since then are in Redis.
        """
        return bool(self._policy) and self._policy not in await self._ledger.versions()

    def _parts(
        self, learners: Learners, checkpointing: Checkpointing, device: Device, first_step: int
    ) -> Parts:
        models = {policy: learner.model for policy, learner in learners.by_policy.items()}
        collector = Collector(
            self._redis,
            self._job_id,
            {policy: model.vocabulary_size for policy, model in models.items()},
            first_step=first_step,
            timeout_s=self._spec.limits.step_timeout_s,
            control=self._control,
            max_staleness=self._spec.max_staleness,
            max_dropped_fraction=self._spec.limits.max_dropped_fraction,
            fence=self._fence,
            vision={policy: model.vision for policy, model in models.items()},
            min_candidates=learners.min_candidates,
            scored=[p for p in models if teacher_name(p) in self._spec.teachers()],
        )
        versions = Versions(
            self._job_id,
            learners,
            self._publisher,
            self._ledger,
            self._run_dir / "publish" / self._policy,
            self._progress,
            device,
            epoch=self._epoch,
        )
        evaluations = Evaluations(
            self._spec,
            StepLedger(self._redis, self._job_id, fence=self._fence),
            self._control,
            lambda: collector.make_room(checkpointing.cover),
            is_first=self._settings.colocated or self._sends_live(),
        )
        return Parts(
            learners,
            collector,
            versions,
            device,
            evaluations,
            checkpointing,
            self._progress,
            self._control,
        )

    def _sends_live(self) -> bool:
        """Whether a policy's weights are in its learner alone, which sends them from there."""
        is_full = any(policy.train.kind == "full" for policy in self._spec.policies.values())
        return is_full and self._publisher.takes_live

    async def _export(self, learners: Learners) -> dict[str, Any]:
        """Export the artifacts of every policy; their paths are in the job's result."""
        policies: dict[str, dict[str, str]] = {}
        for policy, learner in learners.by_policy.items():
            spec, folder = self._spec.policies[policy], self._run_dir / "policies" / policy
            policies[policy] = await learners.on_thread(
                lambda source=learner, s=spec, f=folder: export_artifacts(source, s, f)
            )
        return {"step": self._spec.steps, "policies": policies}


async def heed(ranks: Ranks, tell: Callable[[str], Awaitable[None]]) -> None:
    """Fail the job where a rank above 0 alone can't go on: rank 0 waits for it in a collective.

    ``tell`` is given the reason first, since leaving the ranks may take long.
    """
    while ranks.size > 1:
        if reason := await asyncio.to_thread(ranks.failure):
            await tell(reason)
            raise JobFailedError(reason)
        await asyncio.sleep(_HEED_S)


def admitting(ledger: StepLedger) -> Callable[[], None]:
    """A check for a thread about to change a file: raises FencedError when it must not."""
    loop = asyncio.get_running_loop()

    def admit() -> None:
        asyncio.run_coroutine_threadsafe(ledger.check(), loop).result(_ADMIT_S)

    return admit


def check_writable(run_dir: Path) -> None:
    """Fail early where the run folder takes no files.

    Raises:
        InvalidArgumentError: it is another user's, or no folder.
        UnavailableError: the machine is short of something, such as disk; it may pass.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        probe = run_dir / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        if is_transient(error):
            raise UnavailableError(
                f"The trainer can't write to the run folder {run_dir} now ({error.strerror}); it "
                "begins again when the machine has what it lacks."
            ) from error
        raise InvalidArgumentError(
            f"The run folder {run_dir} is not writable for the trainer ({error.strerror}). Give "
            "another one, or change its owner."
        ) from error


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The first single error in a tree of groups."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
