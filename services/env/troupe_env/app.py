"""Wires the env service: families, judging pool, sandbox, servicer, membership."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import get_args

import grpc.aio

from troupe.api.env.v1 import env_pb2
from troupe.api.env.v1.env_pb2_grpc import add_EnvServiceServicer_to_server
from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ENV, Replica
from troupe.bundles.archive import Bundle
from troupe.clients.router import RouterClient
from troupe.runtime.serving import Membership, replica_name
from troupe.runtime.telemetry import metrics
from troupe.sandbox.sandbox import Limit
from troupe.tasks.program_ends import ANSWERED, OF_OTHERS, OF_TEAM
from troupe_env.bundles.forwarding import ForwardingServicer
from troupe_env.bundles.processes import BundleProcesses
from troupe_env.families import Families
from troupe_env.judging_pool import JudgingPool
from troupe_env.sandbox.settings import SandboxSettings
from troupe_env.sandbox.source import SandboxSource
from troupe_env.servicer import EnvServicer
from troupe_env.settings import EnvSettings


class EnvApp:
    """The env service as ``troupe.runtime.serving.serve`` runs it. Holds nothing between calls."""

    name = "env"
    grpc_services: Sequence[str] = (env_pb2.DESCRIPTOR.services_by_name["EnvService"].full_name,)

    def __init__(self, settings: EnvSettings, sandbox: SandboxSettings | None = None) -> None:
        sandbox = sandbox or SandboxSettings()
        # The given object, no copy: Life writes into it which admin port was bound.
        self._settings = settings
        judging = settings.with_threads_for(sandbox.num_workers)
        self._sandbox = SandboxSource(sandbox)
        self._families = Families(settings.max_environments, self._sandbox.get)
        self._pool = JudgingPool(judging)
        self.bundles = BundleProcesses(judging, self._fetch)
        self._router: RouterClient | None = None
        self._replica_id = replica_name(settings, self.name)
        self._incarnation = uuid.uuid4().hex
        self._address = ""
        self._is_serving = False
        _count_from_zero()

    @property
    def num_in_flight(self) -> int:
        """Requests queued or being judged, here or in a bundle's process."""
        return self._pool.in_flight.num + self.bundles.in_flight.num

    async def connect(self) -> None:
        """Prove the isolation that was asked for. The router may start later."""
        if self._sandbox.is_required:
            await asyncio.to_thread(self._sandbox.get)
        self._router = RouterClient(self._settings.router)

    def register(self, server: grpc.aio.Server) -> None:
        own = EnvServicer(self._settings, self._families, self._pool)
        servicer = ForwardingServicer(self._settings, own, self.bundles)
        add_EnvServiceServicer_to_server(servicer, server)

    async def warm(self, address: str) -> None:
        """Do nothing: families are constructed on demand."""
        self._address = address
        self._is_serving = True

    async def run(self) -> None:
        """Be a member until the job ends."""
        assert self._router is not None
        membership = Membership(self._router, self._describe)
        await _first(
            asyncio.create_task(_live(membership)), asyncio.create_task(self._pool.watch())
        )

    async def drain(self) -> None:
        self._is_serving = False
        await asyncio.gather(self._pool.in_flight.wait_idle(), self.bundles.in_flight.wait_idle())

    async def close(self) -> None:
        self._pool.close()
        await self.bundles.close()
        await asyncio.to_thread(self._families.close)
        await asyncio.to_thread(self._sandbox.close)
        if self._router is not None:
            await self._router.close()

    async def _fetch(self, digest: str) -> Bundle:
        assert self._router is not None
        return await self._router.bundle(digest)

    def _describe(self) -> Replica:
        return Replica(
            replica_id=self._replica_id,
            kind=REPLICA_KIND_ENV,
            address=self._address,
            job_id=self._settings.job_id,
            admin_address=self._settings.admin_address,
            incarnation=self._incarnation,
            num_in_flight=self.num_in_flight,
            is_serving=self._is_serving,
        )


def _count_from_zero() -> None:
    metrics.start_at_zero(metrics.ENV_ACTIONS, ["true", "false"])
    metrics.start_at_zero(metrics.ENV_REFUSED_STATES, ["changed", "unreadable"])
    metrics.start_at_zero(metrics.ENV_PROGRAM_RUNS, [ANSWERED, *OF_TEAM, *OF_OTHERS])
    outcomes = ["ok", "failed", "broken", *get_args(Limit)]
    metrics.start_at_zero(metrics.ENV_SANDBOX_RUNS, outcomes)


async def _live(membership: Membership) -> None:
    await membership.join()
    await membership.run()


async def _first(*tasks: "asyncio.Task[None]") -> None:
    """Return or raise the outcome of the first task to end; cancel the others."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
