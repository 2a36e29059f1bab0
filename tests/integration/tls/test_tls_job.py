"""A whole job of four processes that know each other by their certificates alone."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tls_world import TlsDoor, environment, issue

from benchmarks.random_model import save_random_model
from tests.conftest import ValkeyServer
from troupe.clients import RouterClient
from troupe.clients.rest import AsyncRestClient
from troupe.errors import ForbiddenError, UnavailableError
from troupe.runtime.tls import ROLES, Role
from troupe.runtime.tls.certificates import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
Start = Callable[[Role, dict[str, str]], Awaitable[None]]


@pytest.fixture
async def door(redis: Redis, valkey_server: ValkeyServer, tmp_path: Path) -> AsyncIterator[TlsDoor]:
    """TLS in front of an empty Valkey; outlives the processes, which say goodbye through it."""
    authority = Authority.create("job")
    authority.save(tmp_path / "tls" / "authority")
    for role in ROLES:
        issue(authority, [role], tmp_path / "tls" / role)
    found = TlsDoor(valkey_server.port, tmp_path / "tls" / "redis")
    await found.open()
    yield found
    await found.close()


@pytest.fixture
async def start(door: TlsDoor, tmp_path: Path) -> AsyncIterator[Start]:
    """``start("env", settings)``: a service's process that holds ``tmp_path/tls/env``."""
    running: list[asyncio.subprocess.Process] = []
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}

    async def call(role: Role, settings: dict[str, str]) -> None:
        named = {f"TROUPE_{role.upper()}_{name}": value for name, value in settings.items()}
        log = (tmp_path / f"{role}.log").open("wb")
        with log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"troupe_{role}"),
                env={
                    **inherited,
                    **environment(tmp_path / "tls" / role),
                    **named,
                    "OMP_NUM_THREADS": "1",
                },
                stdout=log,
                stderr=log,
            )
        running.append(process)

    yield call
    for process in running:
        if process.returncode is None:
            process.terminate()
    for process in running:
        try:
            async with asyncio.timeout(60):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _spec(model: Path) -> dict[str, object]:
    return {
        "name": "over-tls",
        "steps": 1,
        "tasks_per_step": 1,
        "task": {"name": "plan_path", "params": {"size": 4, "max_actions": 3}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 1},
        "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
        "policies": {
            "shared": {"model": str(model), "train": {"kind": "lora", "rank": 4, "alpha": 8}}
        },
        "algorithm": {"kind": "at_grpo", "group_size": 2},
        "sampling": {"max_new_tokens": 4},
        "eval": {"num_tasks": 1},
    }


async def _eventually(condition: Callable[[], Awaitable[bool]], timeout_s: float = 400) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 (another process's state has no event)
            await asyncio.sleep(0.1)


def _logs(folder: Path) -> str:
    return "\n".join(f"{p.name}: {p.read_text()[-3000:]}" for p in folder.glob("*.log"))


async def test_job_when_every_edge_has_tls_then_succeeds_through_a_rotation(
    start: Start,
    door: TlsDoor,
    free_port: Callable[[], int],
    become: Callable[[Role | Path | None], None],
    tmp_path: Path,
) -> None:
    url = f"rediss://localhost:{door.port}/0"
    rest, grpc = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    await start(
        "router",
        {
            "REST_ADDRESS": rest,
            "GRPC_ADDRESS": grpc,
            "LAUNCHER": "none",
            "REDIS_URL": url,
            "RUNS_DIR": str(tmp_path / "runs"),
        },
    )
    model = save_random_model(tmp_path / "model")
    client = AsyncRestClient(f"http://{rest}", retry_for_s=120)
    job = await client.submit(_spec(model))
    for role in ("env", "rollout", "trainer"):
        redis_url = {"REDIS_URL": url} if role == "trainer" else {}
        await start(role, {"ROUTER": grpc, **redis_url})

    async def is_running() -> bool:
        return (await client.job(job.job_id)).state not in ("queued", "launching")

    await _eventually(is_running)
    # New certificates for all while the job runs.
    authority = Authority.load(tmp_path / "tls" / "authority")
    for role in ROLES:
        issue(authority, [role], tmp_path / "tls" / role)

    async def is_over() -> bool:
        return (await client.job(job.job_id)).state in ("succeeded", "failed")

    await _eventually(is_over)
    assert (await client.job(job.job_id)).state == "succeeded", _logs(tmp_path)

    # The same ports answer nobody who has no certificate.
    become(None)
    async with RouterClient(grpc) as stranger:
        with pytest.raises(UnavailableError):
            await stranger.list_replicas(job.job_id, timeout_s=30)
    become(tmp_path / "tls" / "trainer")
    async with RouterClient(grpc) as trainer:
        assert isinstance(await trainer.list_replicas(job.job_id, timeout_s=30), list)
    become(tmp_path / "tls" / "env")
    async with RouterClient(grpc) as env:
        with pytest.raises(ForbiddenError):
            await env.list_replicas(job.job_id, timeout_s=30)
    await client.close()
