"""Text from a table of bytes is the tokenizer's own, whatever the ids are."""

import random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from troupe_rollout.engines.byte_level import byte_table

WORDS = [
    "the scout sees a wall",
    "na\u00efve caf\u00e9",
    "\u4f60\u597d \u4e16\u754c",
    "a\u0301 \U0001f600 \U0001f468\u200d\U0001f469",
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(WORDS * 20, trainer)
    inner.add_tokens(
        [AddedToken("<tool call>", special=False), AddedToken("\u4e16\u754c", special=False)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>")


def test_decode_when_ids_are_random_then_is_the_tokenizer_s_text(tokenizer: Any) -> None:
    table = byte_table(tokenizer)
    assert table is not None
    rng = random.Random(1)
    size = len(tokenizer)
    for _ in range(2000):  # most of them are no UTF-8
        ids = [rng.randrange(size) for _ in range(rng.randrange(12))]
        assert table.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True)
    for text in WORDS:
        ids = tokenizer.encode(text)
        assert table.decode(ids) == text


def test_decode_when_an_id_has_no_token_then_it_stands_for_nothing(tokenizer: Any) -> None:
    table = byte_table(tokenizer)
    assert table is not None
    ids = tokenizer.encode("wall")
    padded = [len(tokenizer) + 5, *ids, 10**6]
    assert table.decode(padded) == tokenizer.decode(padded, skip_special_tokens=True) == "wall"


def test_table_when_policies_share_a_tokenizer_then_the_vocabulary_is_read_once(
    tokenizer: Any,
) -> None:
    assert byte_table(tokenizer) is byte_table(tokenizer)
    same_tokens = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    assert byte_table(same_tokens) is not byte_table(tokenizer)


def test_table_when_the_tokenizer_is_of_another_kind_then_there_is_none() -> None:
    inner = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    assert byte_table(PreTrainedTokenizerFast(tokenizer_object=inner)) is None
