"""EnvService that passes a request about a bundle on to the bundle's process; others it answers.

Owns the choice between the two, and counts what the bundle's process judges: nobody scrapes that
one.
"""

from typing import Any

import grpc.aio

from troupe.api.env.v1 import env_pb2 as pb
from troupe.api.env.v1.env_pb2_grpc import EnvServiceServicer, EnvServiceStub
from troupe.runtime.telemetry import metrics
from troupe_env.bundles.processes import BundleProcesses
from troupe_env.deadlines import allowed_s
from troupe_env.settings import EnvSettings

_Context = grpc.aio.ServicerContext[Any, Any]


class ForwardingServicer(EnvServiceServicer):
    """``own`` answers for what is installed here, ``bundles`` for what jobs bring along."""

    def __init__(
        self, settings: EnvSettings, own: EnvServiceServicer, bundles: BundleProcesses
    ) -> None:
        self._settings = settings
        self._own = own
        self._bundles = bundles

    async def ListTasks(  # noqa: N802
        self, request: pb.ListTasksRequest, context: _Context
    ) -> pb.ListTasksResponse:
        return await self._answer("ListTasks", request, context)

    async def Reset(  # noqa: N802
        self, request: pb.ResetRequest, context: _Context
    ) -> pb.ResetResponse:
        return await self._answer("Reset", request, context)

    async def Step(  # noqa: N802
        self, request: pb.StepRequest, context: _Context
    ) -> pb.StepResponse:
        return await self._answer("Step", request, context)

    async def Observe(  # noqa: N802
        self, request: pb.ObserveRequest, context: _Context
    ) -> pb.ObserveResponse:
        return await self._answer("Observe", request, context)

    async def PlayDryRun(  # noqa: N802
        self, request: pb.PlayDryRunRequest, context: _Context
    ) -> pb.PlayDryRunResponse:
        return await self._answer("PlayDryRun", request, context)

    async def _answer(self, method: str, request: Any, context: _Context) -> Any:
        digest = request.environment.bundle_digest
        if not digest:
            return await getattr(self._own, method)(request, context)
        with self._bundles.in_flight.one():
            return await self._bundles.call(
                digest,
                method,
                lambda stub, timeout_s: _asked(stub, method, request, timeout_s),
                allowed_s(context, self._settings.call_timeout_s),
            )


async def _asked(stub: EnvServiceStub, method: str, request: Any, timeout_s: float) -> Any:
    if method != "Step":
        return await getattr(stub, method)(request, timeout=timeout_s)
    with metrics.ENV_STEP_SECONDS.time():
        answer = await stub.Step(request, timeout=timeout_s)
    for outcome in answer.outcomes:
        metrics.ENV_ACTIONS.labels(str(outcome.is_success).lower()).inc()
    return answer
