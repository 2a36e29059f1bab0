"""Whether words stand in the order of English: a model of classes of words, three in a row.

The table (``english.xz``, made by ``tools/word_order``) says for each triple of word classes how
much likelier the third is after the other two than by chance. Shuffled words gain less than
nothing, prose about half a bit a word. Integers only, so every machine finds the same. It sees
word order within three words; it knows nothing of meaning, and grammatical nonsense passes.
"""

import lzma
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

STEPS_A_BIT = 2
"""The table's unit is half a bit."""

MAX_GAIN = 3 * STEPS_A_BIT
"""A place pays at most this, so a few set phrases cannot make up for the rest."""

STOP, COMMA, NUMBER = ".", ",", "0"

_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+|[.!?]+|[,;:()\-\u2013\u2014]")
_ENDINGS = (
    *("ing", "ed", "ly", "tion", "sion", "ment", "ness", "ity", "ies", "ers", "er", "es", "s"),
    *("al", "ous", "ive", "able", "y", "e"),
)


@dataclass(frozen=True, slots=True)
class _Table:
    classes: dict[str, int]
    gains: bytes
    num_classes: int


def gain(text: str) -> float:
    """Bits that a place of ``text`` gains over chance, on average; 0 for a text without words."""
    table = _table()
    classes = [_class_of(table, token) for token in word_tokens(text)]
    num, total = table.num_classes, 0
    for first, second, third in zip(classes, classes[1:], classes[2:], strict=False):
        total += min(table.gains[(first * num + second) * num + third] - 128, MAX_GAIN)
    places = len(classes) - 2
    return total / (STEPS_A_BIT * places) if places > 0 else 0.0


def word_tokens(text: str) -> list[str]:
    """``text`` as words in lower case, numbers, commas and sentence ends, between two ends."""
    out = [STOP]
    for token in _TOKEN.findall(text.lower().replace("\u2019", "'")):
        read = token if token[0].isalpha() else _mark(token)
        if read in (STOP, COMMA) and out[-1] in (STOP, COMMA):
            out[-1] = STOP if read == STOP else out[-1]
        else:
            out.append(read)
    return out if out[-1] == STOP else [*out, STOP]


def token_class_names(token: str) -> tuple[str, str]:
    """What an unknown word is taken for: words with its ending, or any unknown word."""
    for ending in _ENDINGS:
        if len(token) > len(ending) + 2 and token.endswith(ending):
            return f"<{ending}>", "<>"
    return "<>", "<>"


def _mark(token: str) -> str:
    if token[0].isdigit():
        return NUMBER
    return STOP if token[0] in ".!?" else COMMA


def _class_of(table: _Table, token: str) -> int:
    known = table.classes.get(token)
    if known is not None:
        return known
    ending, other = token_class_names(token)
    return table.classes.get(ending, table.classes[other])


@cache
def _table() -> _Table:
    data = lzma.decompress((files("troupe_tasks.writing") / "english.xz").read_bytes())
    listed, gains = data.split(b"\n\n", 1)
    lines = listed.decode().split("\n")
    classes = {word: number for number, line in enumerate(lines) for word in line.split()}
    return _Table(classes, gains, len(lines))
