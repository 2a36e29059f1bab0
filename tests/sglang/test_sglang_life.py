"""A real SGLang that is killed: in mid-generation, in mid-push; and one that comes late."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sglang_world import (
    CANARY,
    engine_settings,
    full_policies,
    lora_policies,
    request,
    until,
    worst,
)

from benchmarks.rollout_fleet import Members, Sidecar, TinyTrainer, publisher, sidecar
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.client import SglangClient

RESTART_S = 240


@pytest.fixture(params=["lora", "full"])
def policies(request: pytest.FixtureRequest, sglang_model: Path) -> Any:
    make = lora_policies if request.param == "lora" else full_policies
    return make(sglang_model)


@pytest.fixture
async def engine(policies: Any, tmp_path: Path) -> AsyncIterator[SglangEngine]:
    found = SglangEngine(engine_settings(tmp_path / "work"))
    await found.start(policies)
    yield found
    await found.stop()


def kill_server(engine: SglangEngine) -> None:
    os.kill(engine._servers[0].pid, signal.SIGKILL)


def kill_scheduler(engine: SglangEngine) -> None:
    """The process that computes; the HTTP server lives on and notices."""
    main = psutil.Process(engine._servers[0].pid)
    children = {child.name(): child for child in main.children(recursive=True)}
    found = [child for name, child in children.items() if "sched" in name]
    assert found, sorted(children)
    found[0].kill()


async def test_engine_killed_in_mid_generation_and_in_mid_push_comes_back_with_its_version(
    engine: SglangEngine, policies: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    async with sidecar(engine, tmp_path / "in") as replica:
        members = Members([replica])
        publish = publisher(members, policies, timeout_s=RESTART_S)
        trainer.learn(1, size=0.02)
        await publish.publish(trainer.export(0))

        # In mid-generation.
        long = request(0, sampling={"max_new_tokens": 200}, num_candidates=16)
        running = asyncio.ensure_future(engine.generate(long))
        await until(lambda: engine.num_in_flight() > 0, 10, "a request in flight")
        kill_server(engine)
        with pytest.raises(UnavailableError):
            await running
        assert engine.num_in_flight() == 0
        await until(lambda: not replica.replica().is_serving, 10, "the heartbeat says so")
        await until(engine.is_ready, RESTART_S, "the engine is back")
        scores = await engine.score("p", 0, CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4
        assert (await engine.generate(request(0))).policy_version == 0

        # In mid-push: the server dies while it loads.
        name = "load_adapter" if "lora" in str(policies["p"].train.kind) else "load_weights"
        real = getattr(SglangClient, name)

        async def load_and_die(self: SglangClient, *args: Any) -> None:
            monkeypatch.setattr(SglangClient, name, real)
            loading = asyncio.ensure_future(real(self, *args))
            kill_scheduler(engine)
            await loading

        trainer.learn(2, size=0.02)
        monkeypatch.setattr(SglangClient, name, load_and_die)
        await publish.publish(trainer.export(1))
        assert engine._servers[0].num_starts == 3
        assert engine.policies()[0].active_version == 1
        assert (await engine.generate(request(1))).policy_version == 1
        scores = await engine.score("p", 1, CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4
        await publish.close()


async def test_late_joiner_gets_the_current_version_before_it_serves(
    sglang_model: Path, tmp_path: Path
):
    policies = lora_policies(sglang_model)
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    trainer.learn(3, size=0.1)
    engines = [SglangEngine(engine_settings(tmp_path / f"work{i}")) for i in range(2)]
    members = Members()
    publish = publisher(members, policies)
    await engines[0].start(policies)
    async with sidecar(engines[0], tmp_path / "in0", "r0") as first:
        members.sidecars.append(first)
        await publish.publish(trainer.export(4))
        watch = asyncio.ensure_future(publish.watch())
        await engines[1].start(policies)
        async with sidecar(engines[1], tmp_path / "in1", "r1") as late:
            assert engines[1].policies()[0].loaded_versions == ()
            members.sidecars.append(late)
            await until(lambda: _serves(late, 4), 60, "the late joiner is brought up to date")
            ours, theirs = [await e.score("p", 4, CANARY) for e in engines]
            assert worst(ours, theirs) < 1e-5
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
    await publish.close()
    for engine in engines:
        await engine.stop()


def _serves(replica: Sidecar, version: int) -> bool:
    return replica.engine.policies()[0].active_version == version


async def test_engine_that_needs_a_gpu_says_that_there_is_none(sglang_model: Path, tmp_path: Path):
    engine = SglangEngine(engine_settings(tmp_path / "work", device="cuda"))
    with pytest.raises(InvalidArgumentError, match="sees 0 GPUs"):
        await engine.start(lora_policies(sglang_model))
    await engine.stop()


async def test_server_that_cannot_start_says_why(sglang_model: Path, tmp_path: Path):
    settings = engine_settings(tmp_path / "work", extra_flags="--attention-backend nonsense")
    engine = SglangEngine(settings)
    with pytest.raises(InvalidArgumentError, match=r"ended with status .*nonsense"):
        await engine.start(lora_policies(sglang_model))
    await engine.stop()


_SIDECAR = """
import asyncio, sys
from pathlib import Path
from troupe_rollout.engines.sglang import SglangEngine
sys.path.insert(0, sys.argv[3])
from sglang_world import engine_settings, lora_policies

async def main():
    engine = SglangEngine(engine_settings(Path(sys.argv[1])))
    await engine.start(lora_policies(Path(sys.argv[2])))
    print("ready", engine._servers[0].pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_server_ends_with_a_sidecar_that_is_killed(sglang_model: Path, tmp_path: Path):
    here = str(Path(__file__).parent)
    work = str(tmp_path / "work")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SIDECAR, work, str(sglang_model), here),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(RESTART_S):
        while not (line := await process.stdout.readline()).startswith(b"ready"):
            assert line, "the sidecar ended"
    main = psutil.Process(int(line.split()[1]))
    everyone = [main, *main.children(recursive=True)]
    assert len(everyone) >= 3, "server, scheduler, detokenizer"
    process.kill()
    await process.wait()
    await until(lambda: not any(map(_is_alive, everyone)), 20, "all processes of the server end")


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
