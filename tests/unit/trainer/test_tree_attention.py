"""Attention block by block is attention under the whole mask, forward and backward."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainer_data import job_spec, make_group
from transformers.modeling_utils import AttentionInterface

from troupe.candidates import Sample
from troupe.errors import InvalidArgumentError
from troupe.spec.batch import BatchSpec
from troupe_trainer.model import tree_attention
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Microbatch, pack
from troupe_trainer.model.tree_attention import Tree, bias_of
from troupe_trainer.samples import PromptSamples, credit


class _Attention:
    """What PyTorch's attention looks at of a transformers module."""

    num_key_value_groups = 2
    is_causal = True


def _prompts(lengths: list[int]) -> list[PromptSamples]:
    """Blocks of different sizes, each a prompt and two completions that share a beginning."""
    rng = random.Random(0)
    found: list[PromptSamples] = []
    for length in lengths:
        prompt = np.array([rng.randrange(4, 30) for _ in range(length)], dtype=np.int64)
        shared = [rng.randrange(4, 30) for _ in range(3)]
        completions = [[*shared, *(rng.randrange(4, 30) for _ in range(3))] for _ in range(2)]
        samples = [
            Sample(
                0,
                0.0,
                len(c),
                False,
                token_ids=c,
                rollout_logprobs=np.zeros(len(c), dtype=np.float32),
                advantage=1.0,
            )
            for c in completions
        ]
        found.append(PromptSamples(prompt, samples))
    return found


def _heads(count: int, num_tokens: int) -> torch.Tensor:
    return torch.randn(1, count, num_tokens, 8, requires_grad=True)


@pytest.mark.parametrize(
    ("lengths", "cells"),
    [([6, 6, 6], 1 << 24), ([20, 19, 18, 9, 8, 2], 1 << 24), ([20, 19, 18, 9], 700), ([5], 1)],
)
def test_attention_by_blocks_when_lengths_differ_then_is_that_under_the_whole_mask(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], cells: int
) -> None:
    monkeypatch.setattr(tree_attention, "CELLS_PER_PART", cells)
    torch.manual_seed(0)
    (batch,) = pack(_prompts(lengths), BatchSpec())
    num_tokens = len(batch.tokens_M)
    query, key, value = _heads(4, num_tokens), _heads(2, num_tokens), _heads(2, num_tokens)
    weights = torch.randn(1, num_tokens, 4, 8)

    tree = Tree(batch.lengths, batch.ends_M, torch.device("cpu"), torch.float32)
    by_blocks = tree_attention.attend(_Attention(), query, key, value, None, tree)[0]
    whole_mask = bias_of(torch.from_numpy(batch.ends_M)[None], torch.float32)
    whole = tree_attention.attend(_Attention(), query, key, value, whole_mask)[0]

    assert torch.allclose(by_blocks, whole, atol=1e-6)
    for one, other in zip(
        torch.autograd.grad((by_blocks * weights).sum(), (query, key, value)),
        torch.autograd.grad((whole * weights).sum(), (query, key, value)),
        strict=True,
    ):
        assert one.abs().max() > 0
        assert torch.allclose(one, other, atol=1e-5)


def _microbatch(group_size: int = 5) -> Microbatch:
    rng = random.Random(3)
    groups = [make_group(rng, task=task, size=group_size) for task in range(4)]
    prompts = [p for g in groups for p in credit(g, [1.0] * group_size, 0.7).prompts]
    (batch,) = pack(prompts, BatchSpec())
    return batch


def _gradients(model: PolicyModel, batch: Microbatch) -> list[torch.Tensor]:
    logprobs, _ = model.logprobs(batch, want_entropy_grad=False)
    logprobs.sum().backward()
    found = [logprobs.detach()]
    for parameter in model.trainable().values():
        assert parameter.grad is not None
        found.append(parameter.grad)
    return found


def test_a_model_that_hands_nothing_to_its_attention_is_given_the_whole_mask(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = job_spec(tiny_model).policies["shared"]
    by_blocks = PolicyModel("shared", policy, seed=0, device="cpu")
    found = _gradients(by_blocks, _microbatch())

    def forgets(module: Any, *heads: Any, tree: Any = None, **kwargs: Any) -> Any:
        return tree_attention.sdpa_attention_forward(module, *heads, **kwargs)

    monkeypatch.setitem(AttentionInterface._global_mapping, tree_attention.NAME, forgets)
    whole = PolicyModel("shared", policy, seed=0, device="cpu")

    assert by_blocks.module.config._attn_implementation == tree_attention.NAME
    assert whole.module.config._attn_implementation == "sdpa"
    for one, other in zip(found, _gradients(whole, _microbatch()), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_a_model_with_layers_that_do_not_attend_is_refused(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_layer_alone(module: Any, *heads: Any, tree: Any = None, **kwargs: Any) -> Any:
        own = None if module.layer_idx else tree
        return tree_attention.attend(module, *heads, tree=own, **kwargs)

    monkeypatch.setitem(AttentionInterface._global_mapping, tree_attention.NAME, first_layer_alone)
    with pytest.raises(InvalidArgumentError, match=r"1 of the 2 layers of policy 'shared'"):
        PolicyModel("shared", job_spec(tiny_model).policies["shared"], seed=0, device="cpu")
