"""How many versions' weights the cpu engine holds at once, and the memory that they are in."""

import asyncio
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.cache_utils import Cache

from troupe.candidates import Candidate, GenerateRequest
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import PolicySpec
from troupe_rollout.engines.cpu import CpuEngine, pool
from troupe_rollout.engines.cpu import engine as cpu_engine
from troupe_rollout.engines.cpu.blocks import WeightBlocks
from troupe_rollout.engines.cpu.pool import KvPool
from troupe_rollout.engines.cpu.settings import CpuEngineSettings

TOKENS = [5, 9, 33, 12, 40, 7, 21, 60, 4]


@pytest.fixture
def held_by(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many modules there are whenever one was built, with it."""
    built, held = list[weakref.ref[Any]](), list[int]()
    build = cpu_engine.build_module

    def counted(*args: Any) -> Any:
        module, sums = build(*args)
        built.append(weakref.ref(module))
        held.append(sum(each() is not None for each in built))
        return module, sums

    monkeypatch.setattr(cpu_engine, "build_module", counted)
    return held


async def push(engine: CpuEngine, version: int, path: Path) -> None:
    await engine.stage(StagedWeights("shared", version, "full", path, ""))
    await engine.score("shared", version, TOKENS)
    await engine.activate("shared", version)


async def draw(engine: CpuEngine, version: int, tokens: int = 8) -> Sequence[Candidate]:
    sampling = SamplingSpec(max_new_tokens=tokens)
    return (
        await engine.generate(GenerateRequest("shared", version, TOKENS, 8, sampling, 3))
    ).candidates


async def test_versions_when_each_replaces_the_last_then_two_are_in_two_blocks(
    engine: CpuEngine, base_weights: Path, held_by: list[int]
):
    for version in range(1, 13):
        await push(engine, version, base_weights)
        await engine.discard("shared", version - 1)
        await draw(engine, version)
    # Version 0 was built before anybody counted.
    assert held_by == [1, *[2] * 11]
    assert engine._blocks["shared"].num_made == 2


async def test_versions_when_nobody_unloads_one_then_three_are_held_with_the_one_that_is_built(
    engine: CpuEngine, base_weights: Path, held_by: list[int]
):
    for version in range(1, 8):
        await push(engine, version, base_weights)
        await draw(engine, version)
    assert max(held_by) == 3
    assert engine._blocks["shared"].num_made == 3


async def test_version_that_answers_a_request_when_it_is_unloaded_keeps_its_weights(
    engine: CpuEngine, base_weights: Path, tmp_path: Path, held_by: list[int]
):
    other = {name: tensor * 0.5 for name, tensor in load_file(base_weights).items()}
    save_file(other, tmp_path / "other")
    expected = await draw(engine, 0, 40)
    under_way = [asyncio.ensure_future(draw(engine, 0, 40)) for _ in range(8)]
    await asyncio.wait(under_way, timeout=0)
    for version in range(1, 4):
        await push(engine, version, tmp_path / "other")
        await engine.discard("shared", version - 1)
    assert all(candidates == expected for candidates in await asyncio.gather(*under_way))
    assert await draw(engine, 3, 40) != expected
    assert max(held_by) == 2, "and the one that answers, which is not counted"


async def test_keys_when_requests_of_many_lengths_join_then_stay_within_the_setting(
    model_dir: Path, base_weights: Path, monkeypatch: pytest.MonkeyPatch
):
    cells, reserve = list[int](), KvPool.reserve

    def counted(pool: KvPool, *room: Any) -> None:
        reserve(pool, *room)
        cells.append(pool.rows * pool.columns)

    monkeypatch.setattr(KvPool, "reserve", counted)
    engine = CpuEngine(CpuEngineSettings(max_kv_mib=1))
    await engine.start({"shared": PolicySpec(model=str(model_dir))})
    await push(engine, 0, base_weights)
    mine = GenerateRequest("shared", 0, TOKENS, 8, SamplingSpec(max_new_tokens=80), 3)
    alone = (await engine.generate(mine)).candidates
    others = [
        GenerateRequest("shared", 0, TOKENS, 1 + i % 3, SamplingSpec(max_new_tokens=1 + 5 * i), i)
        for i in range(40)
    ]
    asked = [*others[:20], mine, *others[20:]]
    results = await asyncio.gather(*map(engine.generate, asked))
    assert results[20].candidates == alone
    await engine.stop()
    max_cells = 2**20 // (2 * 2 * 2 * 16 * 4)  # layers, keys and values, heads, size, float32
    assert max_cells / 2 < max(cells) <= max_cells


def test_pool_when_it_grows_then_an_old_layer_is_gone_before_the_next_is_copied(
    monkeypatch: pytest.MonkeyPatch,
):
    made, held = list[weakref.ref[Any]](), list[int]()

    class Counted(pool._Layer):
        def __init__(self, *shape: Any) -> None:
            super().__init__(*shape)
            held.append(sum(layer() is not None for layer in made))
            made.append(weakref.ref(self))

    monkeypatch.setattr(pool, "_Layer", Counted)
    keys = torch.zeros(1, 2, 32, 4)
    prompts = Cache(layers=[SimpleNamespace(keys=keys, values=keys)] * 3)  # pyright: ignore
    grown = KvPool()
    grown.reserve(8, 32, prompts)
    grown.reserve(16, 64, prompts)
    assert held == [0, 1, 2, 3, 3, 3]


def test_block_is_given_again_when_its_last_tensor_is_gone_and_not_before():
    blocks = WeightBlocks(torch.device("cpu"))
    rows, columns = torch.zeros(3, 5), torch.zeros(5, 3).t()
    block = blocks.take([rows, columns])
    first = block.put(torch.ones(3, 5), rows)
    second = block.put(torch.full((3, 5), 2.0), columns)
    assert (first.stride(), second.stride()) == ((5, 1), (1, 3))
    del block, first
    third = blocks.take([rows, columns]).put(torch.full((3, 5), 3.0), rows)
    assert (blocks.num_made, float(second.sum()), float(third.sum())) == (2, 30.0, 45.0)
    del second
    kept = blocks.take([rows, columns])
    assert blocks.num_made == 2
    del kept
    blocks.take([rows])
    assert blocks.num_made == 3, "of another size"
