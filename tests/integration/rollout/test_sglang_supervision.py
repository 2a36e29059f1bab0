"""The `sglang` engine's care for its server, with a process that speaks SGLang's HTTP shapes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from benchmarks.random_model import save_random_model
from troupe.candidates import GenerateRequest
from troupe.errors import (
    InvalidArgumentError,
    OverloadedError,
    UnavailableError,
    VersionNotLoadedError,
    WeightsRejectedError,
)
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_trainer.model.model import PolicyModel

FAKE = Path(__file__).with_name("fake_sglang.py")
LORA = LoraSpec(rank=2, alpha=4)


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("wide") / "model", hidden=96)


@pytest.fixture(scope="session")
def adapter(wide_model: Path, tmp_path_factory: pytest.TempPathFactory) -> StagedWeights:
    spec = PolicySpec(model=str(wide_model), train=LORA)
    model = PolicyModel("p", spec, seed=0, device="cpu")
    path = tmp_path_factory.mktemp("adapter") / "weights.safetensors"
    save_file(model.weights(), path)
    return StagedWeights("p", 1, "lora", path, model.adapter_config_json)


@dataclass
class World:
    """An engine on fake servers, and the folder that steers them."""

    folder: Path
    model: Path
    engines: list[SglangEngine]

    def engine(self, **more: Any) -> SglangEngine:
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
        python.chmod(0o755)
        values: dict[str, Any] = {
            "python": str(python),
            "device": "cpu",
            "work_dir": str(self.folder / "work"),
            "health_interval_s": 0.05,
            "health_timeout_s": 0.2,
            "backoff_s": 0.05,
            "start_timeout_s": 20.0,
        }
        self.engines.append(SglangEngine(SglangSettings(**{**values, **more})))
        return self.engines[-1]

    async def started(self, **more: Any) -> SglangEngine:
        engine = self.engine(**more)
        await engine.start({"p": PolicySpec(model=str(self.model), train=LORA)})
        return engine

    def calls(self, path: str) -> list[tuple[int, str | None]]:
        """(process, adapter) of every call of one kind."""
        lines = (self.folder / "calls").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [(pid, name) for pid, called, name in found if called == path]


@pytest.fixture
async def world(
    tmp_path: Path, wide_model: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setenv("FAKE_SGLANG_DIR", str(tmp_path))
    found = World(tmp_path, wide_model, [])
    yield found
    for engine in found.engines:
        await engine.stop()


def version(weights: StagedWeights, number: int) -> StagedWeights:
    return StagedWeights("p", number, "lora", weights.path, weights.adapter_config_json)


def request(number: int, tokens: int = 4, count: int = 2) -> GenerateRequest:
    return GenerateRequest("p", number, [1, 2, 3], count, SamplingSpec(max_new_tokens=tokens), 0)


async def until(condition: Callable[[], bool], within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is another process
            await asyncio.sleep(0.02)


async def test_versions_come_under_names_of_their_own_and_leave_with_the_discard(
    world: World, adapter: StagedWeights
):
    engine = await world.started()
    for number in (1, 2):
        await engine.stage(version(adapter, number))
        await engine.activate("p", number)
    result = await engine.generate(request(2))
    assert [c.token_ids for c in result.candidates] == [[9] * 4] * 2
    assert await engine.score("p", 1, [1, 2, 3]) == [-2.0, -2.0]
    await engine.discard("p", 1)
    loads = [name for _, name in world.calls("/load_lora_adapter")]
    assert len(set(loads)) == 2
    assert [name for _, name in world.calls("/unload_lora_adapter")] == [loads[0]]
    with pytest.raises(VersionNotLoadedError):
        await engine.generate(request(1))
    assert [path.name for path in engine._work.path.iterdir() if path.is_dir()] == [loads[1]]


async def test_unload_waits_for_the_last_request_of_the_version(
    world: World, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    running = asyncio.ensure_future(engine.generate(request(1, tokens=250)))
    await until(lambda: engine.num_in_flight() > 0)
    await engine.stage(version(adapter, 2))
    await engine.activate("p", 2)
    await engine.discard("p", 1)
    assert world.calls("/unload_lora_adapter") == []
    assert (await running).policy_version == 1
    await until(lambda: len(world.calls("/unload_lora_adapter")) == 1)


async def test_same_tensors_staged_again_are_not_loaded_again(world: World, adapter: StagedWeights):
    engine = await world.started()
    digests = [await engine.stage(adapter) for _ in range(3)]
    assert len(set(digests)) == 1
    assert len(world.calls("/load_lora_adapter")) == 1


async def test_killed_server_is_started_again_and_gets_its_versions_before_it_serves(
    world: World, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    await engine.stage(version(adapter, 2))
    running = asyncio.ensure_future(engine.generate(request(1, tokens=2000)))
    await until(lambda: engine.num_in_flight() > 0)
    first = engine._servers[0].pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(UnavailableError):
        await running
    await until(lambda: not engine.is_ready())
    await until(engine.is_ready)
    assert engine._servers[0].pid != first
    loads = world.calls("/load_lora_adapter")
    assert [name for pid, name in loads if pid == first] == [n for p, n in loads if p != first]
    assert (await engine.generate(request(1))).policy_version == 1
    assert engine.policies()[0].staged_versions == (2,)


async def test_server_that_stops_answering_is_replaced(world: World, adapter: StagedWeights):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    first = engine._servers[0].pid
    (world.folder / "mute").touch()
    await until(lambda: not engine.is_ready())
    (world.folder / "mute").unlink()
    await until(engine.is_ready)
    assert engine._servers[0].pid != first
    assert (await engine.generate(request(1))).policy_version == 1


async def test_server_that_will_not_come_back_is_tried_again_until_it_does(
    world: World, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    (world.folder / "refuse-start").touch()
    os.kill(engine._servers[0].pid, signal.SIGKILL)
    await until(lambda: engine._servers[0].num_starts >= 3)
    with pytest.raises(UnavailableError, match="ask another replica"):
        await engine.generate(request(1))
    with pytest.raises(UnavailableError):
        await engine.stage(version(adapter, 2))
    (world.folder / "refuse-start").unlink()
    await until(engine.is_ready)
    assert (await engine.generate(request(1))).policy_version == 1


async def test_first_start_that_fails_is_an_error_with_the_servers_last_words(world: World):
    (world.folder / "refuse-start").touch()
    with pytest.raises(InvalidArgumentError, match=r"status 1.*the fake refuses to start"):
        await world.started()


async def test_stop_ends_the_server_and_leaves_no_files(world: World, adapter: StagedWeights):
    engine = await world.started()
    await engine.stage(adapter)
    pid = engine._servers[0].pid
    await engine.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list((world.folder / "work").iterdir()) == []


async def test_more_candidates_than_the_limit_are_refused(world: World, adapter: StagedWeights):
    engine = await world.started(max_in_flight=3)
    await engine.stage(adapter)
    await engine.activate("p", 1)
    with pytest.raises(OverloadedError, match="MAX_IN_FLIGHT"):
        await engine.generate(request(1, count=4))
    assert engine.num_in_flight() == 0


async def test_full_disk_is_a_retryable_error_and_nothing_is_loaded(
    world: World, adapter: StagedWeights, monkeypatch: pytest.MonkeyPatch
):
    engine = await world.started()
    work = engine._work.path

    def no_space(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("troupe_rollout.engines.sglang.files.os.link", no_space)
    monkeypatch.setattr("troupe_rollout.engines.sglang.files.shutil.copyfile", no_space)
    with pytest.raises(UnavailableError, match="No space left"):
        await engine.stage(adapter)
    monkeypatch.undo()
    assert [path for path in work.iterdir() if path.is_dir()] == []
    assert engine.policies()[0].staged_versions == ()


async def test_adapter_of_another_rank_never_reaches_the_server(
    world: World, adapter: StagedWeights
):
    engine = await world.started()
    config = json.loads(adapter.adapter_config_json) | {"r": 4}
    wrong = StagedWeights("p", 1, "lora", adapter.path, json.dumps(config))
    with pytest.raises(WeightsRejectedError, match="rank 4; the policy's rank is 2"):
        await engine.stage(wrong)
    assert not (world.folder / "calls").exists() or world.calls("/load_lora_adapter") == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"python": "/nowhere/python"}, "can't be run"),
        ({"version": "0.4.0"}, "has SGLang 0.5.23"),
        ({"device": "cuda"}, "sees 0 GPUs"),
    ],
)
async def test_environment_that_cannot_serve_is_refused_at_once(
    world: World, settings: dict[str, Any], words: str
):
    with pytest.raises(InvalidArgumentError, match=words):
        await world.started(**settings)
