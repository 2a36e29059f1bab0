"""The trainer as a process of its own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import torch
from redis.asyncio import Redis
from safetensors.torch import load_file
from trainer_data import groups_of_step, job_spec
from trainer_world import JOB, ReplicaServer, RouterServer, conduct, end, eventually

from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.rollout.v1.rollout_pb2_grpc import add_RolloutServiceServicer_to_server
from troupe.api.router.v1 import router_pb2 as router
from troupe.api.router.v1.router_pb2_grpc import add_RouterServiceServicer_to_server
from troupe.candidates import group_outcome
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe.spec import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.samples import credit

Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def surroundings(grpc_servers: Serve, tiny_model: Path) -> tuple[str, RouterServer]:
    replica, server = ReplicaServer(tiny_model), RouterServer()
    replica.address = await grpc_servers(
        lambda it: add_RolloutServiceServicer_to_server(replica, it)
    )
    server.replicas.append(replica)
    address = await grpc_servers(lambda it: add_RouterServiceServicer_to_server(server, it))
    return address, server


LARGE = """
import torch
from troupe.algorithms.at_grpo import AtGrpo

class Large(AtGrpo):
    def loss(self, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


async def _start(
    redis_url: str, router_address: str, launcher: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    env = os.environ | {
        "TROUPE_TRAINER_REDIS_URL": redis_url,
        "TROUPE_TRAINER_ROUTER": router_address,
        "TROUPE_TRAINER_REPLICA_ID": "trainer-0",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *launcher,
        "-m",
        "troupe_trainer",
        env=env,
        stderr=asyncio.subprocess.PIPE,
    )


def _assigned(spec: JobSpec, run_dir: Path) -> router.Assignment:
    return router.Assignment(job_id=JOB, spec_json=spec.model_dump_json(), run_dir=str(run_dir))


async def test_process_when_killed_in_mid_job_then_its_successor_ends_the_job(
    redis: Redis,
    redis_url: str,
    surroundings: tuple[str, RouterServer],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    address, server = surroundings
    spec = job_spec(tiny_model, steps=3)
    server.assignment = _assigned(spec, tmp_path)
    conductor = asyncio.ensure_future(conduct(redis, spec))
    ledger = StepLedger(redis, JOB)
    first = await _start(redis_url, address)
    await eventually(lambda: (server.replicas[0].active or 0) >= 1, 60)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    second = await _start(redis_url, address)
    async with asyncio.timeout(60):
        while await ledger.result() is None:
            await ledger.wait_change(1.0)
    assert await ledger.versions() == {"shared": 3}
    server.should_exit = True
    assert await asyncio.wait_for(second.wait(), 20) == 0
    await end(conductor)


async def test_process_when_the_model_is_missing_then_fails_the_job_and_exits_with_3(
    redis: Redis, redis_url: str, surroundings: tuple[str, RouterServer], tmp_path: Path
) -> None:
    address, server = surroundings
    spec = job_spec(tmp_path / "nowhere", steps=3)
    server.assignment = _assigned(spec, tmp_path)
    process = await _start(redis_url, address)
    assert await asyncio.wait_for(process.wait(), 60) == 3
    failure = await StepLedger(redis, JOB).failure()
    assert failure is not None
    assert "nowhere" in failure
    assert "policy 'shared'" in failure


async def test_process_when_its_device_runs_out_of_memory_again_then_fails_the_job(
    redis: Redis,
    redis_url: str,
    surroundings: tuple[str, RouterServer],
    tmp_path: Path,
    tiny_model: Path,
) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    address, server = surroundings
    algorithm = {"kind": f"{tmp_path / 'large.py'}:Large", "group_size": 4}
    spec = job_spec(tiny_model, algorithm=algorithm)
    server.assignment = _assigned(spec, tmp_path)
    conductor = asyncio.ensure_future(conduct(redis, spec))
    process = await _start(redis_url, address)
    assert await asyncio.wait_for(process.wait(), 60) == 3
    await end(conductor)
    failure = await StepLedger(redis, JOB).failure()
    assert failure is not None
    assert "Policy 'shared' ran out of memory on cpu in a pass over" in failure
    assert "batch.tokens_per_row" in failure


async def test_process_when_asked_to_end_then_exits_with_0(
    redis: Redis,
    redis_url: str,
    surroundings: tuple[str, RouterServer],
    tmp_path: Path,
    tiny_model: Path,
) -> None:
    address, server = surroundings
    server.assignment = _assigned(job_spec(tiny_model), tmp_path)
    process = await _start(redis_url, address)
    await eventually(lambda: server.replicas[0].active == 0, 60)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.mark.timeout(300)
async def test_process_when_torchrun_starts_two_ranks_then_learns_as_one_process(
    redis: Redis,
    redis_url: str,
    surroundings: tuple[str, RouterServer],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    address, server = surroundings
    spec = job_spec(tiny_model, steps=2)
    server.assignment = _assigned(spec, tmp_path)
    conductor = asyncio.ensure_future(conduct(redis, spec))
    process = await _start(redis_url, address, TORCHRUN)
    try:
        async with asyncio.timeout(240):
            while await StepLedger(redis, JOB).result() is None:
                assert process.returncode is None
                await asyncio.sleep(0.05)
            server.should_exit = True
            assert await process.wait() == 0
    finally:
        await end(conductor)
        if process.returncode is None:
            process.terminate()  # torchrun ends its ranks with itself
            await asyncio.wait_for(process.wait(), 40)
    algorithm = AtGrpo(spec.algorithm)
    alone = Learner("shared", spec, algorithm, device="cpu")
    losses: list[float] = []
    for step in range(spec.steps):
        groups = sorted(groups_of_step(step), key=lambda group: group.group_id)
        credited = [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]
        losses.append(alone.step(credited, step).metrics["loss"])
    events = await EventLog(redis, JOB, source="test").read()
    told = [json.loads(e.event.data_json) for e in events if e.event.type == "step.learned"]
    assert [report["loss"] for report in told] == pytest.approx(losses, rel=1e-3, abs=1e-5)
    spread = load_file(tmp_path / "checkpoints" / "step-00002" / "shared.safetensors")
    for name, parameter in alone.model.trainable().items():
        assert torch.allclose(spread[f"param/{name}"], parameter, atol=2e-4), name
