"""The engine's promises: same numbers however it is computed, and bounded memory."""

import gc
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import groups_of_step, job_spec, make_group
from transformers import Qwen3Config, Qwen3ForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.spec.batch import BatchSpec
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec
from troupe_trainer.learn.learner import Learner, NonFiniteError
from troupe_trainer.model.kernels import PLAIN, Kernels, choose
from troupe_trainer.model.logprobs import token_logprobs
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import pack
from troupe_trainer.model.peak_memory import peak_bytes, reset_peak
from troupe_trainer.samples import CreditedGroup, credit

CPU = torch.device("cpu")


def _learner(spec: JobSpec, **how: Any) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", **how)


def _credited(groups: list[pb.Group], spec: JobSpec) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def test_head_when_worked_by_hand_then_matches() -> None:
    # Logits 0 and log 3 at temperature 1: p = 1/4, 3/4; at temperature 2 the odds are sqrt 3.
    logits = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)]], requires_grad=True)
    got, entropy = token_logprobs(
        logits, torch.tensor([1, 0]), torch.tensor([1.0, 2.0]), want_entropy_grad=False
    )
    assert got.tolist() == pytest.approx([math.log(3 / 4), -math.log(1 + math.sqrt(3))])
    assert entropy[0].item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))
    assert not entropy.requires_grad
    got.sum().backward()
    share = 1 / (1 + math.sqrt(3))
    want = [[-1 / 4, 1 / 4], [(1 - share) / 2, -(1 - share) / 2]]
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx([x for row in want for x in row])


@pytest.mark.parametrize("wants", [False, True])
def test_head_when_compared_with_autograd_then_value_and_gradient_are_equal(wants: bool) -> None:
    torch.manual_seed(0)
    plain = torch.randn(7, 50, dtype=torch.float64).mul(3).float().requires_grad_()
    own = plain.detach().clone().requires_grad_()
    targets, temperatures = torch.randint(50, (7,)), torch.rand(7) + 0.5
    weights = torch.randn(2, 7)
    table = torch.log_softmax(plain / temperatures[:, None], -1)
    want = (table.gather(1, targets[:, None])[:, 0], -(table.exp() * table).sum(-1))
    got = token_logprobs(own, targets, temperatures, want_entropy_grad=wants)
    for one, other in zip(got, want, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    (want[0] @ weights[0] + wants * (want[1] @ weights[1])).backward()
    (got[0] @ weights[0] + (got[1] @ weights[1] if wants else 0.0)).backward()
    assert plain.grad is not None
    assert own.grad is not None
    assert torch.allclose(own.grad, plain.grad, atol=1e-5)


def test_logprobs_when_the_vocabulary_is_large_then_the_whole_table_is_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, vocabulary, completions, length = 9_000_000, 128_000, 64, 16
    monkeypatch.setattr("troupe_trainer.model.logprobs.LOGITS_PER_CHUNK", chunk)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    policy = PolicySpec.model_validate({"model": str(tmp_path), "train": {"kind": "full"}})
    model = PolicyModel("shared", policy, seed=0, device="cpu")
    rng = random.Random(0)
    group = make_group(rng, size=completions)
    for candidate in group.candidates:
        candidate.token_ids[:] = [rng.randrange(vocabulary) for _ in range(length)]
        candidate.rollout_logprobs[:] = [-11.0] * length
    prompts = credit(group, [1.0] * completions, 1.0).prompts
    (batch,) = pack(prompts, BatchSpec(tokens_per_row=4096))
    table_bytes = 4 * completions * length * vocabulary
    gc.collect()
    if not _can_reset_peak():
        pytest.skip("this kernel does not let a process reset its peak")
    before = peak_bytes(CPU)
    reset_peak(CPU)
    logprobs, entropy = model.logprobs(batch, want_entropy_grad=True)
    (logprobs.sum() + entropy.sum()).backward()
    peak = peak_bytes(CPU)
    assert before is not None
    assert peak is not None
    # 200 to 230 MiB, and what the allocator keeps; with the whole table 1,500.
    assert peak - before < 11 * 4 * chunk < 0.8 * table_bytes
    assert logprobs.shape == (completions * length,)


def _can_reset_peak() -> bool:
    ballast = bytearray(64 << 20)
    high = peak_bytes(CPU)
    del ballast
    reset_peak(CPU)
    low = peak_bytes(CPU)
    return high is not None and low is not None and low < high


@pytest.mark.parametrize("train", [{"kind": "lora", "rank": 4}, {"kind": "full"}])
def test_step_when_activations_are_computed_again_then_learns_bit_for_bit_the_same(
    tiny_model: Path, train: dict[str, object]
) -> None:
    policies = {"shared": {"model": str(tiny_model), "train": train}}
    kept = job_spec(tiny_model, policies=policies)
    again = kept.model_copy(
        update={"batch": kept.batch.model_copy(update={"checkpoint_activations": True})}
    )
    one, other = _learner(kept), _learner(again)
    for learner in (one, other):
        learner.step(_credited(groups_of_step(0), kept))
    saved = [_saved_bytes(learner, kept) for learner in (one, other)]
    for name, parameter in one.model.trainable().items():
        assert torch.equal(parameter, other.model.trainable()[name])
    assert saved[1] < 0.5 * saved[0]


def _saved_bytes(learner: Learner, spec: JobSpec) -> int:
    """What autograd keeps for the backward pass of one micro-batch."""
    prompts = [p for g in _credited(groups_of_step(0), spec) for p in g.prompts]
    batch = next(pack(prompts, BatchSpec(tokens_per_row=512)))
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.model.logprobs(batch, want_entropy_grad=False)
    return sum(kept.values())


def test_step_when_sequences_are_packed_side_by_side_then_learns_as_from_the_tree(
    tiny_model: Path,
) -> None:
    spec = job_spec(tiny_model)
    tree, packed = _learner(spec, attention="tree"), _learner(spec, attention="packed")
    got = [x.step(_credited(groups_of_step(0), spec)) for x in (tree, packed)]
    for name in ("loss", "grad_norm", "entropy", "kl_rollout"):
        assert got[0].metrics[name] == pytest.approx(got[1].metrics[name], rel=1e-5, abs=1e-7)


def test_kernels_when_nothing_is_installed_then_are_plain() -> None:
    policy = PolicySpec(model="m", dtype="bfloat16")
    assert choose(policy, "cpu", "auto") == PLAIN
    assert choose(policy, "cpu", "packed") == Kernels("sdpa", is_packed=True)


@pytest.mark.parametrize(
    ("has_flash", "has_liger", "dtype", "device", "attention", "chosen"),
    [
        (True, True, "bfloat16", "cuda", "auto", Kernels("flash_attention_2", True, True)),
        (True, False, "bfloat16", "cuda", "packed", Kernels("flash_attention_2", True)),
        (True, True, "bfloat16", "cuda", "tree", Kernels(has_liger=True)),
        (True, False, "float32", "cuda", "auto", PLAIN),
        (True, False, "float32", "cuda", "packed", Kernels(is_packed=True)),
        (False, True, "bfloat16", "cuda", "auto", Kernels(has_liger=True)),
        (False, False, "bfloat16", "cuda", "packed", Kernels(is_packed=True)),
        (True, True, "bfloat16", "cpu", "auto", PLAIN),
    ],
)
def test_kernels_when_they_are_installed_then_are_used_where_they_fit(
    monkeypatch: pytest.MonkeyPatch,
    has_flash: bool,
    has_liger: bool,
    dtype: Any,
    device: str,
    attention: Any,
    chosen: Kernels,
) -> None:
    seam = "troupe_trainer.model.kernels.is"
    monkeypatch.setattr(f"{seam}_flash_attn_2_available", lambda: has_flash)
    monkeypatch.setattr(f"{seam}_liger_kernel_available", lambda: has_liger)
    assert choose(PolicySpec(model="m", dtype=dtype), device, attention) == chosen


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_step_when_bfloat16_then_moves_the_weights_as_float32_does(
    tiny_model: Path, kind: str
) -> None:
    norms: list[float] = []
    for dtype in ("float32", "bfloat16"):
        policy = {"model": str(tiny_model), "train": {"kind": kind}, "dtype": dtype}
        spec = job_spec(tiny_model, policies={"shared": policy})
        learner = _learner(spec)
        outcome = learner.step(_credited(groups_of_step(0), spec))
        norms.append(outcome.metrics["grad_norm"])
        assert {p.dtype for p in learner.model.trainable().values()} == {torch.float32}
        published = {t.dtype for t in learner.model.weights().values()}
        assert published == {torch.float32 if kind == "lora" else getattr(torch, dtype)}
    assert norms[1] == pytest.approx(norms[0], rel=0.1)


def test_step_when_one_group_gives_no_number_then_names_it_alone(tiny_model: Path) -> None:
    spec = job_spec(tiny_model)
    learner = _learner(spec)
    groups = groups_of_step(0)
    bad = groups[2]
    worst = min(range(4), key=lambda i: bad.candidates[i].reward)
    bad.candidates[worst].rollout_logprobs[0] = -1000.0
    with pytest.raises(NonFiniteError, match=f"at fault: {bad.group_id}\\.") as caught:
        learner.step(_credited(groups, spec))
    assert [g.record.group_id for g in caught.value.groups] == [bad.group_id]
    assert all(p.grad is None for p in learner.model.trainable().values())


def test_step_when_the_weights_are_not_finite_then_says_so(tiny_model: Path) -> None:
    spec = job_spec(tiny_model)
    learner = _learner(spec)
    with torch.no_grad():
        next(iter(learner.model.trainable().values())).fill_(math.nan)
    with pytest.raises(NonFiniteError, match="weights themselves"):
        learner.step(_credited(groups_of_step(0), spec))


def test_step_when_done_then_reports_its_peak_memory(tiny_model: Path) -> None:
    spec = job_spec(tiny_model)
    outcome = _learner(spec).step(_credited(groups_of_step(0), spec))
    assert outcome.peak_memory_bytes is not None
    assert outcome.peak_memory_bytes > 50 << 20
