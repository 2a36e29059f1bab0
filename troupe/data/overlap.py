"""Finds texts of one set in another: exactly, after normalisation, or by shared runs of words.

``near_verbatim`` is for decisions (a repeated row, a train row that is held out too): it takes no
two problems for one. ``normalised`` is for the overlap that is reported, and left out on request.
The measure is that of common contamination reports: the share of a text's word n-grams that also
occur in the other set (Brown et al. 2020, arXiv 2005.14165, appendix C, uses n = 13).
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NGRAM = 13
MIN_WORDS = 8
"""Shorter texts are compared exactly only: any two of them share their runs."""

_SIGNS = frozenset("-*/!%&‖⌈⌉⌊⌋")
"""Punctuation, as Unicode has it, that changes the meaning of a formula."""

_NO_SIGNS = frozenset("$`")
"""Symbols, as Unicode has them, that only mark where a formula or code is."""

_LAYOUT = re.compile(r"\\(?:left|right|,|;|!|quad)|\.(?!\d)")
"""LaTeX spacing, and full stops that are no decimal point."""

_SUPERSCRIPTS = re.compile("[²³¹⁰-ⁿ]+")


@dataclass(frozen=True, slots=True)
class Match:
    """How a text overlaps the other set: ``kind`` is exact or ngram, ``share`` from 0 to 1.

    Example: ``Match("ngram", 0.85)``.
    """

    kind: str
    share: float


def near_verbatim(text: str) -> str:
    """``text`` without differences of case and of white space."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def normalised(text: str) -> str:
    """``text`` without case, compatibility forms, punctuation and LaTeX spacing; signs stay.

    A text of punctuation alone stays as it is.
    """
    verbatim = near_verbatim(text)
    # NFKC would make 10² the number 102.
    powers = _SUPERSCRIPTS.sub(r"^\g<0>", verbatim)
    folded = unicodedata.normalize("NFKC", powers).casefold()
    return " ".join(_LAYOUT.sub(" ", folded).translate(_SPACED).split()) or verbatim


class _Spaced(dict[int, str]):
    """What stands for a character: itself in a word, a word of its own for a sign, or a space."""

    def __missing__(self, code: int) -> str:
        character, kind = chr(code), unicodedata.category(chr(code))[0]
        if kind in "LMN" or character == ".":
            spaced = character
        elif character in _SIGNS or (kind == "S" and character not in _NO_SIGNS):
            spaced = f" {character} "
        else:
            spaced = " "
        self[code] = spaced
        return spaced


_SPACED = _Spaced()


class Texts:
    """A set of texts to search: digests only, so that large sets fit in memory."""

    def __init__(self, texts: Iterable[str], *, ngram: int = NGRAM) -> None:
        self._ngram = ngram
        self._whole: set[bytes] = set()
        self._runs: set[bytes] = set()
        for text in texts:
            words = normalised(text).split()
            self._whole.add(_digest(words))
            self._runs.update(self._runs_of(words))

    def find(self, text: str, *, min_share: float) -> Match | None:
        """How ``text`` occurs in the set, or None when less than ``min_share`` of its runs do."""
        words = normalised(text).split()
        if words and _digest(words) in self._whole:
            return Match("exact", 1.0)
        runs = set(self._runs_of(words))
        if not runs:
            return None
        share = len(runs & self._runs) / len(runs)
        return Match("ngram", share) if share >= min_share else None

    def _runs_of(self, words: list[str]) -> Iterator[bytes]:
        """Digests of runs of ``ngram`` words; a shorter text is one run of its own length."""
        if len(words) < MIN_WORDS:
            return
        size = min(self._ngram, len(words))
        for start in range(len(words) - size + 1):
            yield _digest(words[start : start + size])


def _digest(words: list[str]) -> bytes:
    return hashlib.blake2b(" ".join(words).encode(), digest_size=12).digest()
