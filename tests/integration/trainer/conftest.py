from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis
from trainer_data import job_spec, save_tiny_model
from trainer_world import ReplicaServer, RouterServer, World

from troupe.api.rollout.v1.rollout_pb2_grpc import add_RolloutServiceServicer_to_server
from troupe.api.router.v1.router_pb2_grpc import add_RouterServiceServicer_to_server
from troupe.clients.router import RouterClient


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def world(
    redis: Redis, grpc_servers: Serve, tiny_model: Path, tmp_path: Path
) -> AsyncIterator[World]:
    replica, router = ReplicaServer(tiny_model), RouterServer()
    replica.address = await grpc_servers(
        lambda server: add_RolloutServiceServicer_to_server(replica, server)
    )
    address = await grpc_servers(lambda server: add_RouterServiceServicer_to_server(router, server))
    router.replicas.append(replica)
    client = RouterClient(address)
    spec = job_spec(tiny_model, steps=3, limits={"step_timeout_s": 20, "startup_timeout_s": 5})
    yield World(redis, router, client, replica, spec, tmp_path / "run")
    await client.close()
