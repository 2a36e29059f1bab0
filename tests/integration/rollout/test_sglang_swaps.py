"""Swaps of full weights in a process that speaks SGLang's HTTP shapes, and callers that go away."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_sglang_world import FakeSglangWorld, until
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine, full

SWAP, RELEASE = "/update_weights_from_disk", "/release_memory_occupation"
TOKENS = [1, 2, 3]


@pytest.fixture
async def engine(world: FakeSglangWorld, tmp_path: Path) -> SglangEngine:
    """Version 0 is active, and version 1 staged with other tensors."""
    return await holding(world.engine(), world, tmp_path)


@pytest.fixture
async def colocated(world: FakeSglangWorld, tmp_path: Path) -> SglangEngine:
    """The same, on the trainer's device and awake."""
    return await holding(world.engine(colocated=True), world, tmp_path)


async def holding(engine: SglangEngine, world: FakeSglangWorld, tmp_path: Path) -> SglangEngine:
    await engine.start({"p": PolicySpec(model=str(world.model), train=FullSpec())})
    if engine._turns.is_colocated:
        await engine.wake()
    model = AutoModelForCausalLM.from_pretrained(world.model)
    for number in (0, 1):
        path = tmp_path / f"{number}.safetensors"
        save_file({n: p.detach() + number for n, p in model.named_parameters()}, path)
        await engine.stage(StagedWeights("p", number, "full", path, ""))
        if number == 0:
            await engine.activate("p", 0)
    return engine


@pytest.mark.parametrize("num_cancels", [1, 3])
async def test_swap_when_its_request_is_cancelled_then_ends_and_the_server_goes_on(
    world: FakeSglangWorld, engine: SglangEngine, num_cancels: int
):
    (world.folder / "slow-on").write_text(SWAP)
    canary = asyncio.ensure_future(engine.score("p", 1, TOKENS))
    await until(lambda: len(world.calls(SWAP)) == 2)
    for _ in range(num_cancels):
        canary.cancel()
        await asyncio.sleep(0)
    active = asyncio.ensure_future(engine.score("p", 0, TOKENS))
    with pytest.raises(asyncio.CancelledError):
        await canary
    assert engine.is_ready()
    assert await active == [-2.0, -2.0]
    assert len(world.calls(SWAP)) == 3, "there and back"
    assert engine._servers[0].num_starts == 1


async def test_discard_when_the_trainer_wants_the_device_then_the_swap_back_ends_first(
    world: FakeSglangWorld, colocated: SglangEngine
):
    await colocated.score("p", 1, TOKENS)  # the canary: version 1 is in the server
    (world.folder / "slow-on").write_text(SWAP)
    discard = asyncio.ensure_future(colocated.discard("p", 1))
    await until(lambda: len(world.calls(SWAP)) == 3)
    sleep = asyncio.ensure_future(colocated.sleep())
    await asyncio.sleep(0)
    discard.cancel()
    await sleep
    with pytest.raises(asyncio.CancelledError):
        await discard
    called = [name for name in world.names() if name in (SWAP, RELEASE)]
    assert called == [SWAP] * 3 + [RELEASE]
    await colocated.wake()
    assert await colocated.score("p", 0, TOKENS) == [-2.0, -2.0]
    assert colocated._servers[0].num_starts == 1


async def test_discard_when_the_server_sleeps_then_it_is_forgotten_and_nothing_is_loaded(
    world: FakeSglangWorld, colocated: SglangEngine
):
    await colocated.score("p", 1, TOKENS)
    await colocated.sleep()
    loads = len(world.calls(SWAP))
    await colocated.discard("p", 1)
    assert colocated.policies()[0].staged_versions == ()
    assert len(world.calls(SWAP)) == loads
    await colocated.wake()
    assert await colocated.score("p", 0, TOKENS) == [-2.0, -2.0]
    assert colocated._servers[0].num_starts == 1


async def test_push_when_cancelled_while_its_file_is_kept_then_leaves_no_file(
    engine: SglangEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real, begun, may_go_on = full.keep_full, threading.Event(), threading.Event()

    def slow(*given: Any) -> str:
        begun.set()
        assert may_go_on.wait(20)
        try:
            return real(*given)
        finally:
            begun.clear()

    monkeypatch.setattr(full, "keep_full", slow)
    kept = {path for path in engine._work.path.iterdir() if path.is_dir()}
    weights = StagedWeights("p", 2, "full", tmp_path / "1.safetensors", "")
    push = asyncio.ensure_future(engine.stage(weights))
    await until(begun.is_set)
    push.cancel()
    with pytest.raises(asyncio.CancelledError):
        await push
    may_go_on.set()
    await until(lambda: not begun.is_set())
    await until(lambda: {path for path in engine._work.path.iterdir() if path.is_dir()} == kept, 5)
    assert engine.policies()[0].staged_versions == (1,)
