"""Client of a trainer: its status, and pausing, resuming and stopping it."""

from collections.abc import Mapping
from dataclasses import dataclass

from troupe.api.trainer.v1 import trainer_pb2 as pb
from troupe.api.trainer.v1.trainer_pb2_grpc import TrainerServiceStub
from troupe.clients.channel import Client


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """A trainer's progress. ``job_id`` is empty while it waits for a job.

    Example: ``TrainerStatus("demo-1", 3, 40, "collect", 1.5, {"shared": 3}, False)``.
    """

    job_id: str
    step: int
    num_steps: int
    phase: str
    phase_s: float
    policy_versions: Mapping[str, int]
    is_paused: bool


class TrainerClient(Client):
    """One trainer process."""

    peer = "trainer"

    def __init__(self, address: str, *, retry_for_s: float = 2.0) -> None:
        super().__init__(address, retry_for_s=retry_for_s)
        self._stub = TrainerServiceStub(self._channel)

    async def progress(self, *, timeout_s: float = 5.0) -> TrainerStatus:
        """The trainer's progress."""
        answer = await self._call(
            "GetProgress",
            lambda left_s: self._stub.GetProgress(pb.GetProgressRequest(), timeout=left_s),
            timeout_s=timeout_s,
        )
        return TrainerStatus(
            job_id=answer.job_id,
            step=answer.step,
            num_steps=answer.num_steps,
            phase=answer.phase,
            phase_s=answer.phase_s,
            policy_versions=dict(answer.policy_versions),
            is_paused=answer.is_paused,
        )

    async def pause(self, *, timeout_s: float = 5.0) -> None:
        """Pause before the next optimizer step."""
        await self._call(
            "Pause",
            lambda left_s: self._stub.Pause(pb.PauseRequest(), timeout=left_s),
            timeout_s=timeout_s,
        )

    async def resume(self, *, timeout_s: float = 5.0) -> None:
        """Continue after ``pause``."""
        await self._call(
            "Resume",
            lambda left_s: self._stub.Resume(pb.ResumeRequest(), timeout=left_s),
            timeout_s=timeout_s,
        )

    async def cancel(self, reason: str, *, timeout_s: float = 5.0) -> None:
        """Save a checkpoint and exit."""
        request = pb.CancelRequest(reason=reason)
        await self._call(
            "Cancel",
            lambda left_s: self._stub.Cancel(request, timeout=left_s),
            timeout_s=timeout_s,
        )
