"""TrainerService over TrainerProgress and Control: proto to domain, no logic."""

import time
from typing import TYPE_CHECKING, Any

import grpc.aio

from troupe.api.trainer.v1 import trainer_pb2 as pb
from troupe.api.trainer.v1.trainer_pb2_grpc import TrainerServiceServicer
from troupe_trainer.control import Control, TrainerProgress

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


class TrainerServicer(TrainerServiceServicer):
    """Answers from the present state."""

    def __init__(self, progress: TrainerProgress, control: Control) -> None:
        self._progress = progress
        self._control = control

    async def GetProgress(  # noqa: N802
        self, request: pb.GetProgressRequest, context: Context
    ) -> pb.GetProgressResponse:
        progress = self._progress
        return pb.GetProgressResponse(
            job_id=progress.job_id,
            step=progress.step,
            num_steps=progress.num_steps,
            phase=progress.phase,
            phase_s=time.monotonic() - progress.phase_started,
            policy_versions=progress.policy_versions,
            is_paused=self._control.is_paused,
        )

    async def Pause(  # noqa: N802
        self, request: pb.PauseRequest, context: Context
    ) -> pb.PauseResponse:
        self._control.pause()
        return pb.PauseResponse()

    async def Resume(  # noqa: N802
        self, request: pb.ResumeRequest, context: Context
    ) -> pb.ResumeResponse:
        self._control.resume()
        return pb.ResumeResponse()

    async def Cancel(  # noqa: N802
        self, request: pb.CancelRequest, context: Context
    ) -> pb.CancelResponse:
        self._control.stop(request.reason or "cancelled")
        return pb.CancelResponse()
