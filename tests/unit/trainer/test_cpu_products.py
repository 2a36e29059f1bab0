"""Linear layers by oneDNN and the one gradient of a tied weight, against PyTorch's own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from troupe_trainer.model.onednn import OneDnnLinear, has_onednn, padded, use_onednn
from troupe_trainer.model.tied_gradient import TiedHead, join_gradients

pytestmark = pytest.mark.skipif(not has_onednn(), reason="this PyTorch has no oneDNN")


def _twins(*, tied: bool = True, padding: int | None = None) -> tuple[Any, Any]:
    """The same model twice: PyTorch's own, and one with the layers under test."""
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=128,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
        tie_word_embeddings=tied,
        pad_token_id=padding,
    )
    models: list[Any] = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(LlamaForCausalLM(config).eval())
    use_onednn(models[1])
    return models[0], models[1]


def _backward(model: Any, tokens: torch.Tensor) -> None:
    logits = model(input_ids=tokens, use_cache=False).logits
    torch.log_softmax(logits, -1)[..., 7].sum().backward()


def _same_gradients(plain: Any, other: Any) -> None:
    for (name, one), two in zip(plain.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(two.grad, one.grad, rtol=1e-3, atol=1e-4, msg=name)


def test_layers_by_onednn_when_trained_then_gradients_are_pytorchs():
    plain, fast = _twins(tied=False)
    assert isinstance(fast.model.layers[0].mlp.up_proj, OneDnnLinear)
    tokens = torch.randint(0, 300, (2, 9))
    for model in (plain, fast):
        _backward(model, tokens)
    _same_gradients(plain, fast)


def test_layer_by_onednn_under_autocast_then_it_computes_as_pytorch_does():
    layer = nn.Linear(128, 128)
    inputs = torch.randn(3, 128)
    with torch.autocast("cpu", torch.bfloat16):
        expected = layer(inputs)
        use_onednn(layer)
        assert torch.equal(layer(inputs), expected)
    assert layer(inputs).dtype == torch.float32


@pytest.mark.parametrize("padding", [None, 3])
def test_tied_gradient_over_two_passes_then_it_is_pytorchs_sum(padding: int | None):
    plain, joined = _twins(padding=padding)
    join_gradients(joined)
    assert isinstance(joined.lm_head, TiedHead)
    passes = [torch.tensor([[3, 5, 5, 1, 9]]), torch.tensor([[299, 3, 4], [4, 0, 5]])]
    for model in (plain, joined):
        for tokens in passes:
            _backward(model, tokens)
    _same_gradients(plain, joined)


def test_tied_gradient_after_a_pass_that_broke_off_then_nothing_of_it_is_left():
    plain, joined = _twins()
    join_gradients(joined)
    hidden = joined.model(input_ids=torch.tensor([[8, 8]]), use_cache=False).last_hidden_state
    joined.lm_head(hidden.detach()).sum().backward()  # the head's gradient, and no embedding's
    for model in (plain, joined):
        _backward(model, torch.tensor([[1, 2, 3]]))
    _same_gradients(plain, joined)


def test_tied_gradient_of_tokens_looked_up_twice_then_both_count():
    plain, joined = _twins()
    join_gradients(joined)
    for model in (plain, joined):
        one = model.model.embed_tokens(torch.tensor([[1, 2]]))
        two = model.model.embed_tokens(torch.tensor([[2, 4]]))
        logits = model(inputs_embeds=one + 2 * two, use_cache=False).logits
        torch.log_softmax(logits, -1)[..., 7].sum().backward()
    _same_gradients(plain, joined)


def test_padding_of_any_number_of_rows_is_little_and_leaves_few_numbers():
    sizes = {count: len(padded(np.zeros(count), 0)) for count in range(1, 5000)}
    assert all(0 <= size - count < max(16, count / 16 + 1) for count, size in sizes.items())
    assert len({size for count, size in sizes.items() if count >= 256}) < 80
    assert padded(np.array([5, 6]), 1).tolist() == [5, 6, *[1] * 14]
