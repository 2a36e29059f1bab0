"""Wires the rollout service: engine, staging, servicer, membership.

Owns when models are loaded: after the router assigned a job, while heartbeats already run.
"""

import asyncio
import uuid
from collections.abc import Sequence

import grpc.aio
from pydantic import ValidationError

from troupe.api.rollout.v1 import rollout_pb2
from troupe.api.rollout.v1.rollout_pb2_grpc import add_RolloutServiceServicer_to_server
from troupe.api.router.v1.router_pb2 import (
    REPLICA_KIND_ROLLOUT,
    Assignment,
    Replica,
    ReplicaPolicy,
)
from troupe.clients.router import RouterClient
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.plugins import ENGINES, load
from troupe.runtime.engines.engine import Engine
from troupe.runtime.serving import Membership, replica_name
from troupe.runtime.serving.memory import settle_heap
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.weights.store import WeightStore, open_store
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec
from troupe_rollout.servicer import RolloutServicer
from troupe_rollout.settings import RolloutSettings
from troupe_rollout.staging import StagingArea
from troupe_rollout.teachers import hold_teachers

_log = get_logger(__name__)


class RolloutApp:
    """The rollout service as ``troupe.runtime.serving.serve`` runs it. Serves a single job."""

    name = "rollout"
    grpc_services: Sequence[str] = (
        rollout_pb2.DESCRIPTOR.services_by_name["RolloutService"].full_name,
    )

    def __init__(self, settings: RolloutSettings) -> None:
        self._settings = settings
        self._engine = make_engine(settings.engine)
        self._staging = StagingArea(
            settings.staging_dir,
            max_bytes=settings.max_weights_bytes,
            max_uploads=settings.max_uploads,
            chunk_timeout_s=settings.chunk_timeout_s,
            store=self._store,
        )
        self._servicer: RolloutServicer | None = None
        self._router: RouterClient | None = None
        self._membership: Membership | None = None
        self._replica_id = replica_name(settings, self.name)
        self._incarnation = uuid.uuid4().hex
        self._address = ""
        self._is_serving = False

    async def connect(self) -> None:
        """Check the router's address and the staging folder; the router may start later."""
        self._router = RouterClient(self._settings.router)
        self._staging.open()

    def register(self, server: grpc.aio.Server) -> None:
        self._servicer = RolloutServicer(
            self._settings, self._engine, self._staging, tell=self._changed
        )
        add_RolloutServiceServicer_to_server(self._servicer, server)

    async def warm(self, address: str) -> None:
        """Keep the address; the models to load are known once a job is assigned."""
        self._address = address

    async def run(self) -> None:
        """Join, load the job's models while keeping the membership, serve until the job ends."""
        assert self._router is not None
        assert self._servicer is not None
        membership = Membership(self._router, self._describe, hear=self._servicer.hear)
        self._membership = membership
        assignment = await membership.join()
        beats = asyncio.ensure_future(membership.run())
        loading = asyncio.ensure_future(self._load(assignment))
        try:
            await asyncio.wait({beats, loading}, return_when=asyncio.FIRST_COMPLETED)
            if not beats.done():
                loading.result()
            await beats
        finally:
            beats.cancel()
            loading.cancel()
            await asyncio.gather(beats, loading, return_exceptions=True)

    async def drain(self) -> None:
        self._is_serving = False
        if self._servicer is not None:
            await self._servicer.wait_idle()

    async def close(self) -> None:
        self._is_serving = False
        await self._engine.stop()
        self._staging.close()
        if self._router is not None:
            await self._router.close()

    def _changed(self) -> None:
        """Report at once which version answers here, before the next heartbeat."""
        if self._membership is not None:
            self._membership.tell()

    def _store(self) -> WeightStore:
        return open_store(self._settings.weights_url, self._settings.weights_options)

    async def _load(self, assignment: Assignment) -> None:
        assert self._servicer is not None
        policies, teachers = assigned_policies(assignment)
        await self._engine.start(policies)
        await hold_teachers(self._engine, {name: policies[name] for name in teachers})
        settle_heap()
        models = sorted({spec.model for spec in policies.values()})
        self._servicer.open(", ".join(models), assignment.job_id)
        self._is_serving = True
        _log.info("rollout.loaded", policies=sorted(policies), models=models)

    def _describe(self) -> Replica:
        return Replica(
            replica_id=self._replica_id,
            kind=REPLICA_KIND_ROLLOUT,
            address=self._address,
            job_id=self._settings.job_id,
            admin_address=self._settings.admin_address,
            incarnation=self._incarnation,
            policies=[
                ReplicaPolicy(
                    policy=state.policy,
                    active_version=state.active_version or 0,
                    loaded_versions=state.loaded_versions,
                    tensor_digest=state.tensor_digest,
                )
                for state in self._engine.policies()
            ],
            num_in_flight=self._engine.num_in_flight(),
            is_serving=self._is_serving and self._engine.is_ready(),
        )


def make_engine(name: str) -> Engine:
    """The engine called ``name``, with its own settings from the environment."""
    try:
        return load(ENGINES, name)()
    except ValidationError as error:
        wrong = "; ".join(
            f"TROUPE_ROLLOUT_{'_'.join(map(str, item['loc'])).upper()}: {item['msg']}"
            for item in error.errors()
        )
        raise InvalidArgumentError(
            f"The settings of engine '{name}' are wrong: {wrong}. Correct the environment."
        ) from error


def assigned_policies(assignment: Assignment) -> tuple[dict[str, PolicySpec], list[str]]:
    """What to serve, and which of them are teachers.

    Raises InvalidArgumentError when the assignment makes no sense.
    """
    try:
        spec = JobSpec.model_validate_json(assignment.spec_json)
    except (ValidationError, TroupeError) as error:
        raise InvalidArgumentError(
            f"The spec of job {assignment.job_id} can't be read by this version of the rollout "
            f"service ({error}). Run the same version of Troupe everywhere."
        ) from error
    served = spec.served()
    names = list(assignment.policies) or list(served)
    if unknown := [name for name in names if name not in served]:
        raise InvalidArgumentError(
            f"The assignment of job {assignment.job_id} names policies {unknown} that its spec "
            f"does not have ({sorted(served)}). Run the same version of Troupe everywhere."
        )
    return {name: served[name] for name in names}, [n for n in names if n not in spec.policies]
