"""A version that becomes active while the `cpu` engine samples: who goes on with it, and how."""

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DynamicCache

from troupe.candidates import Candidate, GenerateRequest, Generation
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import SamplingSpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.batcher import Batcher

PROMPT = [5, 9, 30, 11, 8, 40, 7]
LONG = 200


@pytest.fixture
async def moved(engine: CpuEngine, base_weights: Path, tmp_path: Path) -> Path:
    """Version 1 of the engine's policy, staged: every weight a little elsewhere."""
    generator = torch.Generator().manual_seed(3)
    weights = load_file(base_weights)
    for name, tensor in weights.items():
        weights[name] = tensor + 0.1 * tensor.std() * torch.randn(tensor.shape, generator=generator)
    path = tmp_path / "moved.safetensors"
    save_file(weights, path)
    await engine.stage(StagedWeights("shared", 1, "full", path, ""))
    return path


def request(*, follows: bool, k: int = 3, tokens: int = LONG, seed: int = 4) -> GenerateRequest:
    how = SamplingSpec(max_new_tokens=tokens)
    return GenerateRequest("shared", 0, PROMPT, k, how, seed, follows_updates=follows)


def lane(engine: CpuEngine, version: int) -> Batcher:
    return engine._tables["shared"].serving(version).lane


async def sampled(engine: CpuEngine, version: int, count: int, rows: int = 1) -> None:
    """Wait until so many rows of a version have so many tokens."""

    def look() -> bool:
        held = lane(engine, version)._rows
        return len(held) >= rows and bool((held.count[: len(held)] >= count).all())

    async with asyncio.timeout(20):
        while not await asyncio.wrap_future(engine._worker.call(look)):
            pass


async def updated(engine: CpuEngine, *requests: GenerateRequest) -> list[Generation]:
    """The answers to requests that are under way when version 1 becomes active."""
    asked = [asyncio.ensure_future(engine.generate(each)) for each in requests]
    await sampled(engine, 0, 5, rows=len(requests))
    await engine.activate("shared", 1)
    return list(await asyncio.gather(*asked))


def gone_on(answer: Generation) -> list[tuple[int, Candidate]]:
    """Numbers and candidates that the update met; on a busy machine a short one may be complete."""
    found = [(n, c) for n, c in enumerate(answer.candidates) if len(c.version_spans) == 2]
    assert found
    return found


async def test_answer_when_it_follows_updates_then_spans_say_who_sampled_what(
    engine: CpuEngine, moved: Path
):
    alone = await engine.generate(request(follows=True))
    assert [candidate.version_spans for candidate in alone.candidates] == [()] * 3
    assert alone.policy_version == 0
    [answer] = await updated(engine, request(follows=True))
    assert answer.policy_version == 1
    for number, candidate in gone_on(answer):
        before = alone.candidates[number]
        (first, num_first), (second, num_second) = candidate.version_spans
        assert (first, second) == (0, 1)
        assert num_first >= 5
        assert num_first + num_second == len(candidate.token_ids)
        assert candidate.token_ids[:num_first] == before.token_ids[:num_first]
        assert candidate.logprobs[:num_first] == before.logprobs[:num_first]


async def test_answer_when_it_goes_on_then_with_the_new_weights_on_the_old_keys_and_values(
    engine: CpuEngine, moved: Path, model_dir: Path
):
    [answer] = await updated(engine, request(follows=True))
    old = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    new = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    new.load_state_dict(load_file(moved), strict=False)
    for _, candidate in gone_on(answer):
        num_first, tokens = candidate.version_spans[0][1], list(candidate.token_ids)
        cache = DynamicCache()
        with torch.no_grad():
            old(torch.tensor([PROMPT + tokens[: num_first - 1]]), past_key_values=cache)
            logits = new(torch.tensor([tokens[num_first - 1 :]]), past_key_values=cache).logits
        table = torch.log_softmax(logits[0, :-1], -1)
        wanted = table.gather(1, torch.tensor(tokens[num_first:])[:, None])[:, 0]
        given = torch.tensor(candidate.logprobs[num_first:])
        assert float((given - wanted).abs().max()) < 1e-4


async def test_answer_when_it_does_not_follow_then_is_that_of_the_version_it_named(
    engine: CpuEngine, moved: Path
):
    alone = await engine.generate(request(follows=False))
    kept, gone_on = await updated(
        engine, request(follows=False), request(follows=True, seed=9, k=2)
    )
    assert kept.policy_version == 0
    assert kept.candidates == alone.candidates
    assert {v for c in gone_on.candidates for v, _ in c.version_spans} == {0, 1}


async def test_candidate_when_complete_before_its_siblings_go_on_then_is_the_old_version_s(
    engine: CpuEngine, moved: Path
):
    short = [request(follows=True, k=8, seed=seed) for seed in range(40)]
    generations = await asyncio.gather(*map(engine.generate, short))
    lengths = [[len(c.token_ids) for c in g.candidates] for g in generations]
    number = next(i for i, each in enumerate(lengths) if min(each) < 40 and max(each) > 120)
    asked = asyncio.ensure_future(engine.generate(short[number]))
    await sampled(engine, 0, min(lengths[number]) + 1)
    await engine.activate("shared", 1)
    answer = await asked
    assert answer.policy_version == 1
    first = answer.candidates[lengths[number].index(min(lengths[number]))]
    assert first.version_spans == ((0, min(lengths[number])),)


async def test_waiting_request_when_a_version_comes_then_begins_with_it(
    engine: CpuEngine, moved: Path
):
    large = request(follows=False, k=64)  # the engine decodes 64 rows at once
    # The second one keeps the queue: rows that end early free places, which it takes first.
    asked = [
        asyncio.ensure_future(engine.generate(each))
        for each in (large, large, request(follows=True))
    ]
    await sampled(engine, 0, 2)
    await engine.activate("shared", 1)
    kept, _, waited = await asyncio.gather(*asked)
    assert kept.policy_version == 0
    assert waited.policy_version == 1
    assert [candidate.version_spans for candidate in waited.candidates] == [()] * 3
