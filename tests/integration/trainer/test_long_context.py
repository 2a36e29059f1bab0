"""A chat of some 8,000 tokens, by SmolLM2's own tokenizer and template, through engine and trainer.

The network is small and random, its vocabulary and its context are SmolLM2's: 49,152 and 8,192.
"""

import asyncio
import random
import shutil
from pathlib import Path

import pytest
import torch
from parity_world import job, two_steps
from smollm2_model import smollm2_folder
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import ChatTemplate

VOCABULARY, CONTEXT = 49_152, 8_192
NEW_TOKENS = 12
"""Those of ``parity_world``."""
WORDS = ("Käse", "31415", "because", "the", "你好", "🧀", "rollout", "a\n\n\tb", "didn't", "x" * 40)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random network behind the real tokenizer and its template."""
    folder = tmp_path_factory.mktemp("small") / "model"
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
        max_position_embeddings=CONTEXT, eos_token_id=2, pad_token_id=2, bos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    for path in smollm2_folder().iterdir():
        if path.suffix in (".json", ".jinja", ".txt") and not (folder / path.name).exists():
            shutil.copy(path, folder)
    return folder


def chat_of(folder: Path, num_tokens: int) -> list[int]:
    """A rendered chat of about ``num_tokens``, and not more."""
    template = ChatTemplate(AutoTokenizer.from_pretrained(folder), "small")
    rng, said = random.Random(0), "Sum this up:"
    tokens = list[int]()
    while len(found := template.render([Message("user", said)])) <= num_tokens:
        tokens = found
        missing = max(1, (num_tokens - len(found)) // 16)
        said += " " + " ".join(rng.choice(WORDS) for _ in range(missing))
    return tokens


def test_chat_of_8000_tokens_when_sampled_from_and_learnt_then_probabilities_agree_to_1e_5(
    small: Path, tmp_path: Path
) -> None:
    long, short = chat_of(small, CONTEXT - NEW_TOKENS), chat_of(small, 100)
    assert 7_900 < len(long) <= CONTEXT - NEW_TOKENS
    assert max(long) > 32_000, "real pieces of words, from all over the vocabulary"
    measured = asyncio.run(two_steps(job(small), [long, short], tmp_path))
    print(f"\n{len(long)} tokens: largest |ratio - 1| and KL of each step {measured}")
    assert max(ratio for ratio, _ in measured) < 1e-5
    assert max(kl for _, kl in measured) < 1e-9


def test_chat_when_it_is_longer_than_the_context_then_refused_with_both_numbers_and_the_model(
    small: Path, tmp_path: Path
) -> None:
    too_long = chat_of(small, CONTEXT + 400)
    assert len(too_long) > CONTEXT
    numbers = rf"{len(too_long)} tokens .*'{small}' has {CONTEXT}"
    with pytest.raises(InvalidArgumentError, match=numbers):
        asyncio.run(two_steps(job(small), [too_long], tmp_path))
