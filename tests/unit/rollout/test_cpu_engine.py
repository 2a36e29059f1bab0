"""The cpu engine on a real (random) Qwen3."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from troupe.candidates import GenerateRequest, Generation
from troupe.errors import (
    InvalidArgumentError,
    OverloadedError,
    PromptTooLongError,
    UnavailableError,
    VersionNotLoadedError,
)
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import PolicySpec
from troupe.tasks.family import Message
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.settings import CpuEngineSettings

START, END = 1, 2


def request(
    prompt: list[int], *, k: int = 4, seed: int = 0, version: int = 0, **sampling: object
) -> GenerateRequest:
    how = SamplingSpec.model_validate({"max_new_tokens": 12} | sampling)
    return GenerateRequest("shared", version, prompt, k, how, seed)


def prompt_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, 60, (length,), generator=generator).tolist()


async def test_generate_amid_40_others_is_bit_equal_to_alone(engine: CpuEngine):
    mine = request(prompt_of(45, 7), k=8, seed=99, max_new_tokens=24)
    alone = await engine.generate(mine)
    others = [
        request(
            prompt_of(3 + (i * 13) % 90, i),
            k=1 + i % 9,
            seed=i,
            max_new_tokens=1 + (i * 7) % 40,
            temperature=(0.0, 0.7, 1.0, 1.3)[i % 4],
            top_k=(0, 5)[i % 2],
            top_p=(1.0, 0.8, 1.0)[i % 3],
        )
        for i in range(40)
    ]
    before = [asyncio.ensure_future(engine.generate(other)) for other in others[:25]]
    for _ in range(3):  # let some of them get ahead
        await asyncio.wait(before, return_when=asyncio.FIRST_COMPLETED)
        before = [task for task in before if not task.done()]
    amid, *_ = await asyncio.gather(
        engine.generate(mine), *before, *(engine.generate(other) for other in others[25:])
    )
    assert amid.candidates == alone.candidates


@pytest.mark.parametrize("num_candidates", [1, 2, 3, 5, 8, 20])
async def test_candidate_i_does_not_depend_on_how_many_there_are(
    engine: CpuEngine, num_candidates: int
):
    prompt = prompt_of(33, 1)
    many = await engine.generate(request(prompt, k=20, seed=5))
    some = await engine.generate(request(prompt, k=num_candidates, seed=5))
    assert some.candidates == many.candidates[:num_candidates]


async def test_logprobs_match_an_independent_forward_pass(engine: CpuEngine, model_dir: Path):
    prompt = prompt_of(50, 3)
    result = await engine.generate(request(prompt, k=8, temperature=0.8, max_new_tokens=20))
    reference = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    for candidate in result.candidates:
        ids = torch.tensor([prompt + candidate.token_ids])
        with torch.no_grad():
            logits = reference(ids).logits[0, len(prompt) - 1 : -1] / 0.8
        expected = torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])[:, 0]
        assert candidate.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


async def test_greedy_matches_transformers_generate(engine: CpuEngine, model_dir: Path):
    prompt = prompt_of(40, 4)
    result = await engine.generate(request(prompt, k=2, temperature=0.0, max_new_tokens=30))
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    expected = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False, max_new_tokens=30, pad_token_id=0,
    )  # fmt: skip
    tokens = expected[0, len(prompt) :].tolist()
    assert [c.token_ids for c in result.candidates] == [tokens, tokens]


async def test_candidates_end_with_the_end_token_or_at_the_limit(engine: CpuEngine):
    result = await engine.generate(request(prompt_of(9, 5), k=60, max_new_tokens=40))
    reasons = {candidate.finish_reason for candidate in result.candidates}
    assert reasons == {"stop", "length"}
    for candidate in result.candidates:
        assert END not in candidate.token_ids[:-1]
        assert len(candidate.token_ids) == len(candidate.logprobs) <= 40
        assert (candidate.token_ids[-1] == END) == (candidate.finish_reason == "stop")
        if candidate.finish_reason == "length":
            assert len(candidate.token_ids) == 40
        assert "<|im_end|>" not in candidate.text


async def test_more_than_one_block_of_uniforms_is_drawn_in_order(engine: CpuEngine):
    prompt = prompt_of(5, 6)
    long = await engine.generate(request(prompt, k=20, max_new_tokens=150))
    assert max(len(candidate.token_ids) for candidate in long.candidates) > 64
    again = await engine.generate(request(prompt, k=20, max_new_tokens=150))
    assert again.candidates == long.candidates


async def test_stop_string_ends_a_candidate_and_is_cut_from_its_text(engine: CpuEngine):
    prompt = prompt_of(12, 8)
    free = await engine.generate(request(prompt, k=8, max_new_tokens=30))
    free_candidate = max(free.candidates, key=lambda c: len(c.text.split()))
    words = free_candidate.text.split()
    stop = words[2]
    index = free.candidates.index(free_candidate)
    stopped = await engine.generate(request(prompt, k=8, max_new_tokens=30, stop=[stop]))
    candidate = stopped.candidates[index]
    assert candidate.finish_reason == "stop"
    assert stop not in candidate.text
    assert candidate.token_ids == free_candidate.token_ids[: len(candidate.token_ids)]


async def test_stop_string_that_is_a_special_token_ends_a_candidate(engine: CpuEngine):
    prompt = prompt_of(12, 8)
    stopped = await engine.generate(request(prompt, k=60, max_new_tokens=40, stop=["<|im_start|>"]))
    ended = [c for c in stopped.candidates if START in c.token_ids]
    assert ended
    for candidate in ended:
        assert candidate.token_ids.index(START) == len(candidate.token_ids) - 1
        assert candidate.finish_reason == "stop"
        assert "<|im_start|>" not in candidate.text


async def test_completion_ends_where_the_context_ends(engine: CpuEngine):
    prompt = prompt_of(250, 9)
    result = await engine.generate(request(prompt, k=16, max_new_tokens=100))
    assert max(len(candidate.token_ids) for candidate in result.candidates) == 6


async def test_more_rows_than_fit_wait_for_their_turn(engine: CpuEngine):
    results = await asyncio.gather(
        *(engine.generate(request(prompt_of(8, i), k=24, seed=i)) for i in range(8))
    )
    assert [len(result.candidates) for result in results] == [24] * 8
    assert engine.num_in_flight() == 0


async def test_generate_when_full_is_overloaded(engine: CpuEngine):
    tasks = [
        asyncio.ensure_future(engine.generate(request(prompt_of(8, i), k=128))) for i in range(5)
    ]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(item) for item in done] == [Generation] * 4 + [OverloadedError]


async def test_request_when_its_prefill_fails_then_says_so_at_once_and_the_next_is_served(
    engine: CpuEngine,
):
    fails = [True, True]

    def out_of_memory(*_: object) -> None:
        if fails and fails.pop():
            raise RuntimeError("no memory for this prompt")

    with register_module_forward_pre_hook(out_of_memory):
        asked = [engine.generate(request(prompt_of(8, i))) for i in range(2)]
        done = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        assert all(isinstance(item, UnavailableError) for item in done)
        assert engine.num_in_flight() == 0
        fails.clear()
        result = await engine.generate(request(prompt_of(8, 0)))
    assert len(result.candidates) == 4


async def test_request_when_its_sampling_fits_no_row_then_it_fails_alone(engine: CpuEngine):
    mine = request(prompt_of(8, 0), max_new_tokens=40)
    alone = await engine.generate(mine)
    unchecked = SamplingSpec.model_construct(top_k=10**30, max_new_tokens=3)
    bad = GenerateRequest("shared", 0, prompt_of(8, 0), 2, unchecked, 0)
    asked = [mine, bad, bad, mine]
    done = await asyncio.gather(*map(engine.generate, asked), return_exceptions=True)
    assert all(isinstance(item, Exception) for item in done[1:3])
    assert [done[i].candidates for i in (0, 3)] == [alone.candidates] * 2
    assert engine.num_in_flight() == 0


async def test_cancelled_request_frees_its_rows(engine: CpuEngine):
    task = asyncio.ensure_future(
        engine.generate(request(prompt_of(8, 0), k=64, max_new_tokens=240))
    )
    await engine.generate(request(prompt_of(8, 0), k=1, max_new_tokens=1))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.num_in_flight() == 0
    result = await engine.generate(request(prompt_of(8, 0), k=64, max_new_tokens=2))
    assert len(result.candidates) == 64


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "0 token ids"),
        ([5, 10_000], "Token id 10000 is outside the vocabulary"),
    ],
)
async def test_generate_when_the_prompt_is_wrong_says_how(
    engine: CpuEngine, prompt: list[int], message: str
):
    with pytest.raises(InvalidArgumentError, match=message):
        await engine.generate(request(prompt))
    assert engine.num_in_flight() == 0


async def test_generate_when_the_prompt_fills_the_context_then_the_error_is_of_that_kind(
    engine: CpuEngine,
):
    with pytest.raises(PromptTooLongError, match="has 256 tokens and the context"):
        await engine.generate(request([5] * 256))
    assert engine.num_in_flight() == 0


async def test_generate_for_an_unknown_policy_names_the_known(engine: CpuEngine):
    wrong = GenerateRequest("coder", 0, [5], 1, SamplingSpec(), 0)
    with pytest.raises(InvalidArgumentError, match=r"'coder' is not served here.*shared"):
        await engine.generate(wrong)


async def test_generate_before_any_publish_finds_no_version(model_dir: Path):
    engine = CpuEngine()
    await engine.start({"shared": PolicySpec(model=str(model_dir))})
    assert engine.policies()[0].active_version is None
    with pytest.raises(VersionNotLoadedError):
        await engine.generate(request([5]))
    await engine.stop()


async def test_render_uses_the_chat_template(engine: CpuEngine):
    tokens = engine.render("shared", [Message("user", "w1 w2")])
    assert tokens == [1, 6, 9, 10, 2, 1, 6] or len(tokens) == 7
    assert tokens[0] == 1 and tokens[-2] == 1
    with pytest.raises(InvalidArgumentError):
        engine.render("shared", [])


@pytest.mark.parametrize("model", ["/nowhere/model", "./missing"])
async def test_start_when_the_folder_is_missing_says_so(model: str):
    with pytest.raises(InvalidArgumentError, match="is not a folder"):
        await CpuEngine().start({"shared": PolicySpec(model=model)})


async def test_start_when_the_folder_is_no_model_says_so(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match="can't be loaded"):
        await CpuEngine().start({"shared": PolicySpec(model=str(tmp_path))})


@pytest.mark.parametrize(("window", "is_refused"), [(8, True), (64, False)])
async def test_start_when_layers_attend_to_a_window_then_is_refused_where_it_hides_a_token(
    model_dir: Path, tmp_path: Path, window: int, is_refused: bool
):
    model = tmp_path / "model"
    shutil.copytree(model_dir, model)
    config = MistralConfig(
        vocab_size=80, hidden_size=16, intermediate_size=16, num_hidden_layers=1, head_dim=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        sliding_window=window,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(model)
    engine = CpuEngine()
    said = pytest.raises(InvalidArgumentError, match="attend to 8 tokens")
    with said if is_refused else contextlib.nullcontext():
        await engine.start({"shared": PolicySpec(model=str(model))})
    await engine.stop()


class Attack:
    """Unpickling it writes a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(self._mark),)


async def test_start_when_weights_are_pickled_then_refuses_and_runs_nothing(
    model_dir: Path, tmp_path: Path
):
    evil, mark = tmp_path / "model", tmp_path / "was-here"
    shutil.copytree(model_dir, evil)
    (evil / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Attack(mark)}, evil / "pytorch_model.bin")
    with pytest.raises(InvalidArgumentError, match=r"can't be loaded.*safetensors"):
        await CpuEngine().start({"shared": PolicySpec(model=str(evil))})
    assert not mark.exists()


async def test_policies_with_one_model_share_its_base(model_dir: Path, base_weights: Path):
    engine = CpuEngine(CpuEngineSettings())
    spec = PolicySpec(model=str(model_dir))
    await engine.start({"a": spec, "b": spec})
    assert engine._bases["a"] is engine._bases["b"]  # pyright: ignore
    await engine.stage(StagedWeights("a", 0, "full", base_weights, ""))
    await engine.activate("a", 0)
    assert [state.active_version for state in engine.policies()] == [0, None]
    await engine.stop()
