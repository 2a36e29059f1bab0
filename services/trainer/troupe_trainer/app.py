"""The trainer as a service: connects, registers, runs one job and reports how it ended.

Owns wiring and the exit status. Never trains by itself.
"""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
from pydantic import ValidationError
from redis.asyncio import Redis

from troupe.api.router.v1.router_pb2 import REPLICA_KIND_TRAINER, Assignment, Replica
from troupe.api.trainer.v1.trainer_pb2_grpc import add_TrainerServiceServicer_to_server
from troupe.clients.router import RouterClient
from troupe.errors import FencedError, InvalidArgumentError, JobFailedError
from troupe.runtime.serving.life import replica_name
from troupe.runtime.serving.membership import Membership, ShouldExit
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.redis import connect
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.job import JobSpec
from troupe_trainer.control import Control, StoppedError, TrainerProgress
from troupe_trainer.job import TrainingJob
from troupe_trainer.servicer import TrainerServicer
from troupe_trainer.settings import TrainerSettings

_log = get_logger(__name__)

EXIT_JOB_FAILED = 3
"""The job failed for good: starting this process again would fail again."""

END_S = 5.0
"""Time for the tasks of a job to end after they were cancelled, seconds."""


class TrainerService:
    """One trainer process. ``exit_code`` is what the process should end with."""

    name = "trainer"
    grpc_services: Sequence[str] = ("troupe.api.trainer.v1.TrainerService",)

    def __init__(self, settings: TrainerSettings) -> None:
        self.exit_code = 0
        self._settings = settings
        self._progress = TrainerProgress()
        self._control = Control()
        self._ended = asyncio.Event()
        self._incarnation = uuid.uuid4().hex
        self._address = ""
        self._redis: Redis | None = None
        self._router: RouterClient | None = None

    async def connect(self) -> None:
        self._redis = await connect(self._settings.redis_url)
        self._router = RouterClient(self._settings.router, retry_for_s=2.0)

    def register(self, server: grpc.aio.Server) -> None:
        servicer = TrainerServicer(self._progress, self._control)
        add_TrainerServiceServicer_to_server(servicer, server)

    async def warm(self, address: str) -> None:
        self._address = address

    async def run(self) -> None:
        assert self._router is not None
        membership = Membership(self._router, self._describe)
        try:
            assignment = await membership.join()
            job = asyncio.ensure_future(self._work(assignment))
            beats = asyncio.ensure_future(membership.run())
            try:
                await asyncio.wait({job, beats}, return_when=asyncio.FIRST_COMPLETED)
                (job if job.done() else beats).result()
            finally:
                self._control.stop("the job is over")
                for task in (job, beats):
                    task.cancel()
                await asyncio.wait({job, beats}, timeout=END_S)
        finally:
            self._ended.set()

    async def drain(self) -> None:
        self._control.stop("the process was asked to end")
        await self._ended.wait()

    async def close(self) -> None:
        if self._router is not None:
            await self._router.close()
        if self._redis is not None:
            await self._redis.aclose()

    async def _work(self, assignment: Assignment) -> None:
        """Run the job; a final failure goes to the ledger and to the exit status.

        Raises:
            ShouldExit: another trainer has taken over. This process has not failed: its launcher
                may start it again, and it then waits for other work.
        """
        try:
            await self._run(assignment)
        except StoppedError:
            return
        except FencedError as error:
            _log.error("job.fenced", job_id=assignment.job_id, error=error.message)
            raise ShouldExit(error.message) from error

    async def _run(self, assignment: Assignment) -> None:
        """Run the job; failures are reported under its epoch, so never by a fenced trainer."""
        assert self._redis is not None
        tell = StepLedger(self._redis, assignment.job_id).fail
        try:
            job = self._job(assignment)
            tell = job.fail
            await job.run()
        except (JobFailedError, InvalidArgumentError) as error:
            await tell(error.message)
            self.exit_code = EXIT_JOB_FAILED
            _log.error("job.failed", job_id=assignment.job_id, error=error.message)

    def _job(self, assignment: Assignment) -> TrainingJob:
        assert self._redis is not None
        assert self._router is not None
        try:
            spec = JobSpec.model_validate_json(assignment.spec_json)
        except ValidationError as error:
            raise InvalidArgumentError(
                f"The spec of job {assignment.job_id} can't be read by this trainer: {error}. "
                "Run router and trainer of one version."
            ) from error
        return TrainingJob(
            assignment.job_id,
            spec,
            Path(self._settings.run_dir or assignment.run_dir).absolute(),
            self._settings,
            redis=self._redis,
            router=self._router,
            progress=self._progress,
            control=self._control,
            policy=_own_policy(assignment, spec),
        )

    def _describe(self) -> Replica:
        return Replica(
            replica_id=replica_name(self._settings, self.name),
            kind=REPLICA_KIND_TRAINER,
            address=self._address,
            job_id=self._settings.job_id,
            admin_address=self._settings.admin_address,
            incarnation=self._incarnation,
            is_serving=self._progress.phase not in ("idle", "load"),
        )


def _own_policy(assignment: Assignment, spec: JobSpec) -> str:
    """The one policy that this trainer learns; "" means all of them."""
    if not spec.trainer.per_policy:
        return ""
    named = list(assignment.policies)
    if len(named) != 1 or named[0] not in spec.policies:
        raise InvalidArgumentError(
            f"Job {assignment.job_id} has a trainer for each policy, and the router assigned "
            f"{named or 'none'} to this one. Run router and trainer of one version."
        )
    return named[0]
