"""LoRA versions in a real SGLang: they arrive, answer with the trainer's numbers, and leave."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sglang_world import (
    CANARY,
    PROMPT,
    lora_policies,
    memory_bytes,
    push,
    request,
    until,
    worst,
)

from benchmarks.rollout_fleet import TinyTrainer
from troupe.errors import (
    VersionNotLoadedError,
)
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.sglang import SglangEngine

Trainers = Callable[..., TinyTrainer]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_rollout_logprobs_equal_the_trainers_at_staleness_0(
    lora_engine: SglangEngine, new_trainer: Trainers, temperature: float
):
    own = new_trainer("parity")
    own.learn(11, size=0.3)
    await push(lora_engine, own, 1)
    sampling = {"max_new_tokens": 32, "temperature": temperature}
    result = await lora_engine.generate(request(1, "parity", num_candidates=16, sampling=sampling))
    log_ratios: list[float] = []
    for candidate in result.candidates:
        theirs = own.logprobs(PROMPT, candidate.token_ids, temperature)
        log_ratios += (theirs - torch.tensor(candidate.logprobs)).tolist()
    assert len(log_ratios) > 200
    ratios = torch.tensor(log_ratios).exp()
    assert (ratios - 1).abs().max() < 0.005
    assert (ratios - 1 - ratios.log()).mean() < 1e-4  # k3, never negative


async def test_greedy_completions_equal_those_of_the_cpu_engine(
    lora_engine: SglangEngine, new_trainer: Trainers, sglang_model: Path
):
    own = new_trainer("q")
    own.learn(5, size=0.3)
    await push(lora_engine, own, 1)
    cpu = CpuEngine()
    await cpu.start(lora_policies(sglang_model, "q"))
    await cpu.stage(own.staged(1))
    await cpu.activate("q", 1)
    first = await cpu.generate(request(1, "q", sampling={"temperature": 0, "max_new_tokens": 24}))
    word = first.candidates[0].text.split()[3]
    for stop in ([], [word]):
        sampling = {"temperature": 0, "max_new_tokens": 24, "stop": stop}
        ours = await lora_engine.generate(request(1, "q", num_candidates=2, sampling=sampling))
        theirs = await cpu.generate(request(1, "q", num_candidates=2, sampling=sampling))
        for a, b in zip(ours.candidates, theirs.candidates, strict=True):
            assert (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason)
            assert worst(a.logprobs, b.logprobs) < 1e-3
    await cpu.stop()


async def test_filtered_sampling_reports_the_renormalised_logprob(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    own = new_trainer("q")
    own.learn(5, size=0.3)
    await push(lora_engine, own, 1)
    result = await lora_engine.generate(
        request(1, "q", sampling={"top_k": 2, "max_new_tokens": 6}, num_candidates=8)
    )
    assert len(result.candidates) == 8
    for candidate in result.candidates:
        ids = torch.tensor([[*PROMPT, *candidate.token_ids]])
        with torch.no_grad():
            logits = own.model._causal(input_ids=ids).logits[0, len(PROMPT) - 1 : -1].float()
        top = logits.topk(2)
        table = torch.log_softmax(top.values, -1)
        for row, token in enumerate(candidate.token_ids):
            place = top.indices[row].tolist().index(token)
            assert abs(table[row, place].item() - candidate.logprobs[row]) < 1e-3


async def test_generate_when_top_p_comes_alone_then_it_is_answered(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    await push(lora_engine, new_trainer("q"), 2)
    sampling = {"top_p": 0.9, "max_new_tokens": 6}
    result = await lora_engine.generate(request(2, "q", sampling=sampling, num_candidates=4))
    assert all(max(candidate.logprobs) <= 0.0 for candidate in result.candidates)


async def test_old_version_answers_until_it_is_discarded_and_is_then_unloaded(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    own = new_trainer("p")
    await push(lora_engine, own, 1)
    old_scores = await lora_engine.score("p", 1, CANARY)
    own.learn(2, size=0.3)
    assert await lora_engine.stage(own.staged(2))
    with pytest.raises(VersionNotLoadedError):
        await lora_engine.generate(request(2))
    await lora_engine.activate("p", 2)
    both = await asyncio.gather(lora_engine.generate(request(1)), lora_engine.generate(request(2)))
    assert [result.policy_version for result in both] == [1, 2]
    assert worst(await lora_engine.score("p", 1, CANARY), old_scores) < 1e-6
    assert worst(await lora_engine.score("p", 2, CANARY), old_scores) > 0.1
    await lora_engine.discard("p", 1)
    with pytest.raises(VersionNotLoadedError):
        await lora_engine.generate(request(1))
    names = await lora_engine._servers[0].client().adapters()
    assert [name for name in names if name.startswith("p@1-")] == []
    assert len([name for name in names if name.startswith("p@2-")]) == 1


async def test_request_in_flight_finishes_on_a_version_that_is_discarded_meanwhile(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    own = new_trainer("gone")
    own.learn(1)
    await push(lora_engine, own, 1)
    long = request(1, "gone", sampling={"max_new_tokens": 200}, num_candidates=8)
    running = asyncio.ensure_future(lora_engine.generate(long))
    await until(lambda: lora_engine.num_in_flight() > 0, 10, "a request in flight")
    own.learn(2, size=0.3)
    await lora_engine.stage(own.staged(2))
    await lora_engine.activate("gone", 2)
    await lora_engine.discard("gone", 1)
    result = await running
    assert result.policy_version == 1
    own.learn(2, size=-0.3)  # back to version 1
    for candidate in result.candidates:
        theirs = own.logprobs(PROMPT, candidate.token_ids, 1.0)
        assert worst(theirs.tolist(), candidate.logprobs) < 1e-3


async def test_50_pushes_in_a_row_all_arrive_and_memory_stays_flat(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    own = new_trainer("many")
    before = 0
    for version in range(50):
        own.learn(version, size=0.1)
        await push(lora_engine, own, version)
        await lora_engine.generate(request(version, "many"))
        if version >= 2:
            await lora_engine.discard("many", version - 2)
        if version == 9:
            before = memory_bytes(lora_engine)
    assert memory_bytes(lora_engine) < before + 32 * 2**20
    names = await lora_engine._servers[0].client().adapters()
    assert len([name for name in names if name.startswith("many@")]) == 2
    assert len([p for p in lora_engine._work.path.iterdir() if p.name.startswith("many@")]) == 2
