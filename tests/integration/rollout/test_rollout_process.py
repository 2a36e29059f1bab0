"""``python -m troupe_rollout`` as a process, with a router that only assigns and listens."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest

from troupe.api.router.v1 import router_pb2 as pb
from troupe.api.router.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from troupe.candidates import GenerateRequest
from troupe.clients.rollout import RolloutClient
from troupe.runtime.weights import build_manifest
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message


def spec_json(model: str) -> str:
    return json.dumps(
        {
            "name": "test",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": "shared"}},
            "policies": {"shared": {"model": model}},
        }
    )


@dataclass
class Router(RouterServiceServicer):
    """Assigns one job and keeps the newest heartbeat."""

    spec: str
    address: str = ""
    should_exit: bool = False
    seen: pb.Replica = field(default_factory=pb.Replica)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def _assignment(self) -> pb.Assignment:
        return pb.Assignment(job_id="test-1", spec_json=self.spec, policies=["shared"])

    async def RegisterReplica(self, request: pb.RegisterReplicaRequest, context: Any):
        await self._see(request.replica)
        return pb.RegisterReplicaResponse(assignment=self._assignment(), lease_ttl_s=5)

    async def SendHeartbeat(self, request: pb.SendHeartbeatRequest, context: Any):
        await self._see(request.replica)
        return pb.SendHeartbeatResponse(assignment=self._assignment(), should_exit=self.should_exit)

    async def _see(self, replica: pb.Replica) -> None:
        async with self.changed:
            self.seen = replica
            self.changed.notify_all()

    async def wait_until(self, condition) -> pb.Replica:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: condition(self.seen))
            return self.seen


@pytest.fixture
async def router(rollout_model: Path) -> AsyncIterator[Router]:
    router = Router(spec_json(str(rollout_model)))
    server = grpc.aio.server()
    add_RouterServiceServicer_to_server(router, server)
    router.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield router
    await server.stop(None)


async def start(router: Router, tmp_path: Path, **settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "troupe_rollout",
        env={
            "PATH": "/usr/bin:/bin",
            "TROUPE_ROLLOUT_ROUTER": router.address,
            "TROUPE_ROLLOUT_REPLICA_ID": "rollout-0",
            "TROUPE_ROLLOUT_STAGING_DIR": str(tmp_path),
            **settings,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return process.returncode or 0, (out + err).decode()


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_process_serves_reports_versions_and_exits_when_the_job_ends(
    router: Router, rollout_weights: Path, tmp_path: Path
):
    process = await start(router, tmp_path)
    replica = await router.wait_until(lambda seen: seen.is_serving)
    assert replica.replica_id == "rollout-0"
    assert list(replica.policies[0].loaded_versions) == []
    client = RolloutClient(replica.address)
    manifest = build_manifest(rollout_weights, policy="shared", policy_version=3, kind="full")
    await client.update_weights(manifest, rollout_weights, 30.0)
    await client.activate("shared", 3)
    replica = await router.wait_until(lambda seen: list(seen.policies[0].loaded_versions) == [3])
    assert replica.policies[0].active_version == 3
    assert replica.policies[0].tensor_digest == manifest.tensor_digest
    await client.close()
    async with httpx.AsyncClient(base_url=f"http://{replica.admin_address}") as http:
        series = (await http.get("/metrics")).text
    assert 'troupe_rollout_policy_version{job_id="test-1",policy="shared"} 3.0' in series
    assert 'troupe_rollout_weights_seconds_count{job_id="test-1",phase="activate"} 1.0' in series
    router.should_exit = True
    status, log = await ended(process)
    assert status == 0, log
    assert files_in(tmp_path) == []


async def test_sigterm_lets_a_request_in_flight_end_and_exits_0(
    router: Router, rollout_weights: Path, tmp_path: Path
):
    process = await start(router, tmp_path)
    replica = await router.wait_until(lambda seen: seen.is_serving)
    client = RolloutClient(replica.address)
    manifest = build_manifest(rollout_weights, policy="shared", policy_version=0, kind="full")
    await client.update_weights(manifest, rollout_weights, 30.0)
    await client.activate("shared", 0)
    request = asyncio.ensure_future(
        client.generate(
            GenerateRequest(
                "shared", 0, (Message("user", "w1"),), 128, SamplingSpec(max_new_tokens=200), seed=1
            ),
            timeout_s=30.0,
        )
    )
    async with asyncio.timeout(20):
        while (await client.status()).num_in_flight == 0:
            pass
    process.send_signal(signal.SIGTERM)
    assert len((await request).candidates) == 128
    await client.close()
    status, log = await ended(process)
    assert status == 0, log


async def test_missing_model_ends_with_status_3_and_one_paragraph(router: Router, tmp_path: Path):
    router.spec = spec_json(str(tmp_path / "nothing"))
    status, log = await ended(await start(router, tmp_path))
    assert status == 3, log
    paragraph = next(line for line in log.splitlines() if line.startswith("troupe rollout: "))
    assert str(tmp_path / "nothing") in paragraph
    assert "troupe model tiny" in paragraph


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TROUPE_ROLLOUT_ENGINE", "nonesuch", "no engine is called 'nonesuch'"),
        ("TROUPE_ROLLOUT_MAX_UPLOADS", "many", "TROUPE_ROLLOUT_MAX_UPLOADS"),
        ("TROUPE_ROLLOUT_TORCH_THREADS", "0", "TROUPE_ROLLOUT_TORCH_THREADS"),
        ("TROUPE_ROLLOUT_STAGING_DIR", "/proc/nowhere", "TROUPE_ROLLOUT_STAGING_DIR"),
    ],
)
async def test_wrong_setting_ends_with_status_3_and_says_which(
    router: Router, tmp_path: Path, name: str, value: str, says: str
):
    status, log = await ended(await start(router, tmp_path, **{name: value}))
    assert status == 3, log
    assert says in log
    assert "Traceback" not in log
