import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trainer_data import VOCABULARY, job_spec, make_group
from transformers import AutoModelForCausalLM

from troupe.candidates import Sample
from troupe.spec.batch import BatchSpec
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_trainer.model.flash import computes
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import TREE_TOKENS, Microbatch, build_block, fill, pack
from troupe_trainer.model.tree_attention import attended_cells, visible
from troupe_trainer.samples import PromptSamples, credit

ALLOWED_A_TOKEN = TREE_TOKENS / 0.8
"""Cells of a short tree: its own length a token, and padding to a block 1 / 0.8 as long."""


def _sample(tokens: list[int]) -> Sample:
    logprobs = np.zeros(len(tokens), dtype=np.float32)
    return Sample(
        0, 0.0, len(tokens), False, token_ids=tokens, rollout_logprobs=logprobs, advantage=1.0
    )


def _samples(prompt: list[int], *completions: list[int]) -> PromptSamples:
    return PromptSamples(
        np.array(prompt, dtype=np.int64),
        [_sample(c) for c in completions],
    )


def _random(seed: int, count: int = 6) -> list[PromptSamples]:
    rng = random.Random(seed)
    found: list[PromptSamples] = []
    for task in range(count):
        group = make_group(rng, task=task, size=5)
        found.extend(credit(group, [1.0] * 5, 0.7).prompts)
    return found


def test_block_when_completions_share_a_beginning_then_it_is_laid_out_once() -> None:
    block = build_block(_samples([7, 8], [1, 2, 3], [1, 2, 4], [1, 5], [9]))
    # The last tokens 3, 4, 5, 9 predict nothing, so only 1 and 2 follow the prompt.
    assert block.tokens_B.tolist() == [7, 8, 1, 2]
    assert block.positions_B.tolist() == [0, 1, 2, 3]
    assert block.ends_B.tolist() == [4, 4, 4, 4]
    assert block.predictors_N.tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 1]


def test_mask_when_completions_differ_then_siblings_do_not_see_each_other() -> None:
    (batch,) = pack([_samples([7, 8], [1, 2, 3], [4, 5, 6])], BatchSpec())
    assert batch.tokens_M.tolist() == [7, 8, 1, 2, 4, 5]
    assert batch.positions_M.tolist() == [0, 1, 2, 3, 2, 3]
    assert batch.ends_M.tolist() == [6, 6, 4, 4, 6, 6]
    assert visible(torch.from_numpy(batch.ends_M)[None])[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
    ]


def test_microbatches_when_blocks_are_long_then_none_is_split_and_all_are_there() -> None:
    blocks = [build_block(p) for p in _random(1, 20)]
    found = fill(blocks, 40)
    assert sorted(id(b) for part in found for b in part) == sorted(map(id, blocks))
    assert all(sum(len(b.tokens_B) for b in part) <= 40 or len(part) == 1 for part in found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_block_when_made_of_any_completions_then_each_token_sees_its_own_beginning_only(
    completions: list[list[int]], num_prompt: int
) -> None:
    prompt = list(range(10, 10 + num_prompt))
    block = build_block(_samples(prompt, *completions))
    sees = visible(torch.from_numpy(block.ends_B)[None])[0].numpy()
    predictors = iter(block.predictors_N.tolist())
    for completion in completions:
        for seen in range(len(completion)):
            row = sees[next(predictors)]
            assert block.tokens_B[row].tolist() == [*prompt, *completion[:seen]]
            assert block.positions_B[row].tolist() == list(range(num_prompt + seen))
    beginnings = {tuple(c[:n]) for c in completions for n in range(1, len(c))}
    assert len(block.tokens_B) == num_prompt + len(beginnings)


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(1, 900),
    st.lists(st.integers(1, 1400), min_size=1, max_size=8),
    st.sampled_from([1, 3, 50]),
    st.sampled_from([16, 200, 1024, 4096]),
)
def test_pack_when_group_is_of_any_size_then_budget_and_attention_hold(
    num_prompt: int, lengths: list[int], vocabulary: int, budget: int
) -> None:
    rng = random.Random(f"{num_prompt}/{lengths}")
    completions = [[rng.randrange(vocabulary) for _ in range(length)] for length in lengths]
    prompts = [_samples([7] * num_prompt, *completions), *_random(3, 3)]
    batches = list(pack(prompts, BatchSpec(tokens_per_row=budget, rows_per_microbatch=1)))
    trained = sorted(tuple(s.token_ids) for b in batches for s in b.samples)
    assert trained == sorted(tuple(s.token_ids) for p in prompts for s in p.samples)
    for batch in batches:
        assert len(batch.tokens_M) <= budget or len(batch.samples) == 1
        assert batch.tokens_M.shape == batch.positions_M.shape == batch.ends_M.shape
        long = sum(map(sum, batch.segments))
        visible_cells = int((batch.positions_M[:long] + 1).sum())
        trees = batch.lengths[len(batch.segments) :]
        assert all(n <= TREE_TOKENS for n in trees)
        assert all(sum(n) == m for n, m in zip(batch.segments, batch.lengths, strict=False))
        assert attended_cells(batch) <= 1.2 * visible_cells + ALLOWED_A_TOKEN * sum(trees)


def test_attended_cells_when_completions_are_long_then_are_those_that_are_visible() -> None:
    """The sizes at which the dense mask had 6.5 to 11.3 times the visible cells."""
    ratios: list[float] = []
    for length in (1024, 2048, 4096):
        completions = [[i % 50] * length for i in range(8)]
        for batch in pack([_samples([7] * 512, *completions)], BatchSpec()):
            ratios.append(attended_cells(batch) / int((batch.positions_M + 1).sum()))
    print(f"\nattended cells are {max(ratios):.3f} times the visible ones, at most")
    assert max(ratios) <= 1.2


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_long_completions_when_they_share_a_prompt_then_equal_each_alone(
    tiny_model: Path, kind: str
) -> None:
    spec = job_spec(tiny_model).policies["shared"]
    if kind == "full":
        spec = PolicySpec(model=str(tiny_model), train=FullSpec())
    rng = random.Random(8)
    completions = [[rng.randrange(48) for _ in range(n)] for n in (150, 90, 1, 180)]
    group = _samples([rng.randrange(48) for _ in range(250)], *completions)
    alone = [PromptSamples(group.prompt, [sample]) for sample in group.samples]
    found: list[dict[tuple[int, ...], list[float]]] = []
    gradients: list[list[torch.Tensor]] = []
    for prompts in ([group, *_random(9, 2)], [*alone, *_random(9, 2)]):
        model = PolicyModel("shared", spec, seed=0, device="cpu")
        with torch.no_grad():
            for name, p in model.trainable().items():
                if "lora_B" in name:
                    p.fill_(0.02)
        values: dict[tuple[int, ...], list[float]] = {}
        for batch in pack(prompts, BatchSpec(tokens_per_row=2048)):
            assert bool(batch.segments) == (prompts[0] is group)
            logprobs, entropy = model.logprobs(batch, want_entropy_grad=True)
            (logprobs.sum() + entropy.sum()).backward()
            parts = logprobs.detach().split([len(s.token_ids) for s in batch.samples])
            for sample, part in zip(batch.samples, parts, strict=True):
                values[tuple(sample.token_ids)] = part.tolist()
        found.append(values)
        gradients.append([p.grad for p in model.trainable().values() if p.grad is not None])
    for tokens, together in found[0].items():
        assert together == pytest.approx(found[1][tokens], abs=2e-5)
    for one, other in zip(*gradients, strict=True):
        scale = float(other.abs().max())
        assert scale > 0
        assert float((one - other).abs().max()) < 1e-4 * scale


def test_long_completions_when_the_kernels_refuse_the_dtype_then_are_computed_under_the_mask(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    accepted = [computes(dtype, gpu) for dtype in (torch.float32, torch.bfloat16)]
    assert (accepted, computes(torch.float32, cpu)) == ([False, True], True)
    rng = random.Random(9)
    completions = [[rng.randrange(48) for _ in range(n)] for n in (150, 90, 180)]
    group = _samples([rng.randrange(48) for _ in range(250)], *completions)
    (batch,) = pack([group, *_random(9, 2)], BatchSpec(tokens_per_row=2048))
    assert batch.segments
    model = PolicyModel("shared", job_spec(tiny_model).policies["shared"], seed=0, device="cpu")
    by_segments = model.logprobs(batch, want_entropy_grad=False)[0]
    monkeypatch.setattr("troupe_trainer.model.model.computes", lambda *_: False)
    monkeypatch.setattr("troupe_trainer.model.tree_attention.Segments", None)
    by_mask = model.logprobs(batch, want_entropy_grad=False)[0]
    assert torch.allclose(by_segments, by_mask, atol=2e-5)


def test_pack_when_one_block_is_long_then_no_microbatch_exceeds_the_budget_of_tokens() -> None:
    long = _samples(list(range(200)), [1, 2], [3, 4])
    layout = BatchSpec(tokens_per_row=32, rows_per_microbatch=4)
    batches = list(pack([*_random(6, 40), long], layout))
    assert [b.lengths for b in batches[:2]] == [[201], [201]]  # one completion each
    assert all(len(b.tokens_M) <= 4 * 32 for b in batches[2:])
    assert sum(len(b.samples) for b in batches) == 40 * 5 + 2
    assert sum(len(b.tokens_M) for b in batches[2:]) / (4 * 32 * len(batches[2:])) > 0.8


def test_pack_when_repeated_then_gives_the_same_arrays() -> None:
    batch = BatchSpec(tokens_per_row=48, rows_per_microbatch=2)
    for first, second in zip(pack(_random(2), batch), pack(_random(2), batch), strict=True):
        for name in set(Microbatch.__slots__) - {"samples"}:  # type: ignore[attr-defined]
            assert np.array_equal(getattr(first, name), getattr(second, name))


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> PolicyModel:
    return PolicyModel("shared", job_spec(tiny_model).policies["shared"], seed=0, device="cpu")


def _packed(
    model: PolicyModel, prompts: list[PromptSamples], batch: BatchSpec, *, shares: bool = True
) -> Any:
    """Log probabilities by (prompt, completion), whatever row each came to lie in."""
    found: dict[tuple[bytes, tuple[int, ...]], list[float]] = {}
    prompt_of = {id(s): p.prompt.tobytes() for p in prompts for s in p.samples}
    for micro in pack(prompts, batch, shares_prompts=shares):
        with torch.no_grad():
            values = model.logprobs(micro, want_entropy_grad=False)[0].tolist()
        for sample in micro.samples:
            head, values = values[: len(sample.token_ids)], values[len(sample.token_ids) :]
            found[prompt_of[id(sample)], tuple(sample.token_ids)] = head
        assert not values
    return found


@pytest.mark.parametrize(
    ("tokens_per_row", "shares"), [(16, True), (64, True), (512, True), (64, False)]
)
def test_logprobs_when_packed_then_equal_one_sequence_at_a_time(
    model: PolicyModel, tiny_model: Path, tokens_per_row: int, shares: bool
) -> None:
    reference = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    prompts = _random(4)
    layout = BatchSpec(tokens_per_row=tokens_per_row, rows_per_microbatch=3)
    got = _packed(model, prompts, layout, shares=shares)
    for prompt in prompts:
        for sample in prompt.samples:
            tokens = torch.tensor([[*prompt.prompt.tolist(), *sample.token_ids]])
            with torch.no_grad():
                logits = reference(input_ids=tokens).logits[0].float() / 0.7
            table = torch.log_softmax(logits, -1)[len(prompt.prompt) - 1 : -1]
            want = table.gather(1, tokens[0, len(prompt.prompt) :, None])[:, 0].tolist()
            have = got[prompt.prompt.tobytes(), tuple(sample.token_ids)]
            assert have == pytest.approx(want, abs=1e-5)


def test_logprobs_when_one_sequence_changes_then_the_others_stay(model: PolicyModel) -> None:
    batch = BatchSpec(tokens_per_row=512, rows_per_microbatch=4)
    prompt = [3, 1, 4, 1, 5]
    other = _samples([2, 7, 1, 8], [2, 8], [1, 8, 2])
    before = _packed(model, [_samples(prompt, [9, 9, 9], [6, 7, 8]), other], batch)
    after = _packed(model, [_samples(prompt, [9, 9, 9], [40, 41, 42]), other], batch)
    common = before.keys() & after.keys()
    assert len(common) == 3
    for key in common:
        assert after[key] == pytest.approx(before[key], abs=1e-6)


def test_logprobs_when_chunked_then_equal_and_so_is_the_gradient(
    model: PolicyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (micro,) = pack(_random(5), BatchSpec(tokens_per_row=512, rows_per_microbatch=4))
    parameter = next(iter(model.trainable().values()))

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        parameter.grad = None
        with torch.no_grad():
            for name, p in model.trainable().items():
                if "lora_B" in name:
                    p.fill_(0.02)
        logprobs, entropy = model.logprobs(micro, want_entropy_grad=True)
        (logprobs.sum() + entropy.sum()).backward()
        assert parameter.grad is not None
        return logprobs.detach(), parameter.grad.clone()

    whole = run()
    monkeypatch.setattr("troupe_trainer.model.logprobs.LOGITS_PER_CHUNK", VOCABULARY * 7)
    chunked = run()
    assert torch.allclose(whole[0], chunked[0], atol=1e-6)
    assert torch.allclose(whole[1], chunked[1], atol=1e-4)
    assert whole[1].abs().max() > 0
