"""Whose turn the device is, where the trainer shares it with the server: the trainer's side.

The trainer leads. It touches the device only after every replica has said that it sleeps, and one
that starts meanwhile sleeps until it is sent weights, which wakes it. So a turn survives the death
of either: a new trainer first puts the replicas to sleep, and a new replica waits for weights.
"""

import asyncio
import time
from typing import Protocol

from troupe.api.router.v1.router_pb2 import Replica
from troupe.errors import FencedError, JobFailedError, TroupeError
from troupe.runtime.faults import reached
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.deadlines import startup_s
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.spec.layout import colocated_issues
from troupe_trainer.learn.learners import Learners
from troupe_trainer.publish.publisher import POLL_S, Publisher

_log = get_logger(__name__)


class Device(Protocol):
    """The device that the learners compute on."""

    async def take(self) -> None:
        """Have it for learning. Idempotent."""
        ...

    async def give(self) -> None:
        """Leave it to the servers, for the next round. Idempotent."""
        ...


class TrainersDevice:
    """A device of the trainer's own: it is always the trainer's turn."""

    async def take(self) -> None:
        """Nothing is to be done."""

    async def give(self) -> None:
        """Nothing is to be done."""


class SharedDevice:
    """A device that the job's one server and its trainer take turns on.

    Raises SpecInvalidError for a job that asks for more than that.
    """

    def __init__(self, spec: JobSpec, publisher: Publisher) -> None:
        if issues := colocated_issues(spec):
            raise SpecInvalidError(issues)
        self._publisher = publisher
        self._limit_s = startup_s(spec)
        self._learners: Learners | None = None

    def of(self, learners: Learners) -> None:
        """The learners, which are on the device."""
        self._learners = learners

    async def take(self) -> None:
        """Put every replica to sleep, then bring the learners back.

        Raises:
            JobFailedError: a replica can't sleep, or did not in time.
            FencedError: another trainer has taken over.
        """
        await self._publisher.hold()
        await self._until_asleep()
        reached("trainer.servers_asleep")
        if self._learners is not None:
            await self._learners.enter_device()

    async def give(self) -> None:
        """Take the learners off; the weights that are published next wake the replicas."""
        if self._learners is not None:
            await self._learners.leave_device()
        reached("trainer.device_free")
        self._publisher.go_on()

    async def _until_asleep(self) -> None:
        patience = self._publisher.patience(self._limit_s)
        while True:
            problem = "none is registered"
            try:
                replicas = await self._publisher.holders()
                await asyncio.gather(*(self._sleep(replica) for replica in replicas))
                if replicas:
                    return
            except TroupeError as error:
                problem = error.message
                if isinstance(error, FencedError):
                    raise
                if not error.retryable:
                    raise JobFailedError(f"The rollout replica can't sleep: {problem}") from error
            if await patience.is_over():
                raise JobFailedError(
                    f"The rollout replica did not give the device back within {self._limit_s:g} s: "
                    f"{problem}. Look at its log, or raise limits.startup_timeout_s."
                )
            await asyncio.sleep(POLL_S)

    async def _sleep(self, replica: Replica) -> None:
        began = time.monotonic()
        await self._publisher.client_of(replica).sleep(timeout_s=self._limit_s)
        _log.info(
            "device.taken", replica=replica.replica_id, seconds=round(time.monotonic() - began, 2)
        )
