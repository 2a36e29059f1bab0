"""A vocabulary of 151,936 and a context of 8,192 tokens, on a network that is small otherwise."""

import asyncio
import random
from pathlib import Path

import pytest
import torch
from parity_world import job, two_steps
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.random_model import save_random_model
from troupe.errors import InvalidArgumentError

VOCABULARY, CONTEXT = 151_936, 8_192

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("large") / "model")
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
        max_position_embeddings=CONTEXT,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("length", [3, CONTEXT - 12])
def test_probabilities_when_the_vocabulary_or_the_prompt_is_large_then_engine_and_trainer_agree(
    large: Path, tmp_path: Path, length: int
) -> None:
    rng = random.Random(length)
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for _ in range(2)]
    measured = asyncio.run(two_steps(job(large), prompts, tmp_path))
    assert max(ratio for ratio, _ in measured) < 1e-3
    assert max(kl for _, kl in measured) < 1e-6


def test_prompt_when_it_fills_the_context_then_refused_with_both_numbers(
    large: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{CONTEXT} tokens .* has {CONTEXT}"):
        asyncio.run(two_steps(job(large), [[1] * CONTEXT], tmp_path))
