"""A tokenizer of whole words with bytes to fall back on, and a plain chat template.

Each word of the task is one token, with or without a space before it; any other text is spelled
in bytes. So every text encodes, and decodes to itself.
"""

from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|' + message['role'] + '|> ' + message['content'] + '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)
"""The space after a user's role token makes the first word the same token as any other."""


def make_tokenizer(words: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """A fast tokenizer whose vocabulary is specials, bytes, and ``words``.

    Args:
        words: Words without spaces; order decides their ids.
        max_length: Longest sequence in tokens, told to whoever loads the tokenizer.
    """
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(words), merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[^\s]+|\s"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (PAD, END, *ROLE_TOKENS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens=list(ROLE_TOKENS),
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )


def token_id(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    """The id of one entry of the vocabulary."""
    return tokenizer.get_vocab()[token]


def _vocabulary(words: Sequence[str]) -> dict[str, int]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = [_in_byte_letters(text) for word in words for text in (word, f" {word}")]
    entries = dict.fromkeys((PAD, END, *ROLE_TOKENS, *letters, *spelled))
    return {entry: index for index, entry in enumerate(entries)}


def _in_byte_letters(text: str) -> str:
    """``text`` as byte-level BPE writes it, one printable letter per byte."""
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in splitter.pre_tokenize_str(text))
