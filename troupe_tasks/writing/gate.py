"""Checks missing from the published reward: the texts are about the source, and are prose.

The published formula reads the two outputs only, so one memorised pair earns everything for any
source. The gate is a factor from 0 to 1: it cannot add to the reward, only take away what texts
earn that are off the topic, copied, repetitive, or no prose. The least factor counts, so that more
of one never makes up for less of another. It reads words and their order, not meaning.
"""

from dataclasses import dataclass
from itertools import pairwise

from troupe_tasks.writing.word_order import gain
from troupe_tasks.writing.words import STOPWORDS, content, tokens, words

COPY_RUN = 4
"""Words in a row that count as copied."""

MAX_WORD_CHARS = 32

NEAR = 8
"""Words apart in the source up to which two words are near each other."""

STEM_CHARS = 6
"""Words that begin with the same letters, as many as this, count as one when nearness is asked."""

NO_ORDER, FULL_ORDER = -0.5, 0.1
"""Bits a word that the order of a pair gains over chance: shut below, open from the second on."""

NO_ORDER_ALONE, FULL_ORDER_ALONE = -2.0, -1.3
"""The same for each text by itself: a text of a line may have rare words only."""


@dataclass(frozen=True, slots=True)
class GateRule:
    """Shares from which on the gate is fully open; below, it closes in proportion.

    ``min_grounded`` is the share of a text's content words that the source has, ``min_covered`` of
    the source's that the pair has, ``min_related`` of the pair's neighbours among grounded words
    that are near each other in the source too, ``max_copied`` of a text's words that stand in runs
    of the source, ``min_new_pairs`` of a text's word pairs that are distinct; prose has between
    ``min_stop`` and ``max_stop`` stop words and at most ``max_sentence`` words a sentence.
    """

    min_grounded: float
    min_covered: float
    min_related: float
    max_copied: float = 0.5
    min_new_pairs: float = 0.9
    min_stop: float = 0.2
    max_stop: float = 0.75
    max_sentence: float = 60.0


TLDR_GATE = GateRule(min_grounded=0.35, min_covered=0.2, min_related=0.3)
ARXIV_GATE = GateRule(min_grounded=0.12, min_covered=0.25, min_related=0.5)


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's factors, each from 0 to 1; the least of them is how far it is open."""

    grounded: float
    covered: float
    related: float
    original: float
    varied: float
    ordered: float
    prose: float

    @property
    def factor(self) -> float:
        """What the reward is multiplied by."""
        about = (self.grounded, self.covered, self.related)
        return min(*about, self.original, self.varied, self.ordered, self.prose)


def gate(rule: GateRule, source: str, first: str, second: str) -> Gate:
    """How far the gate opens for a pair of texts on ``source``."""
    pair = (first, second)
    wanted = content(source)
    covered_words = content(first) | content(second)
    covered = len(wanted & covered_words) / len(wanted) if wanted else 1.0
    return Gate(
        grounded=min(_rising(_grounded(text, wanted), rule.min_grounded) for text in pair),
        covered=_rising(covered, rule.min_covered),
        related=_rising(_related(pair, source), rule.min_related),
        original=min(_falling(_copied(text, source), rule.max_copied) for text in pair),
        varied=min(_rising(_new_pairs(text), rule.min_new_pairs) for text in pair),
        ordered=_ordered(pair),
        prose=min(_prose(rule, text) for text in pair),
    )


def _rising(share: float, full: float) -> float:
    """1 from ``full`` on, falling to 0 at half of it."""
    return min(1.0, max(0.0, 2.0 * share / full - 1.0))


def _falling(share: float, full: float) -> float:
    """1 up to ``full``, falling to 0 at 1."""
    return min(1.0, max(0.0, (1.0 - share) / (1.0 - full)))


def _grounded(text: str, wanted: frozenset[str]) -> float:
    used = content(text)
    return len(used & wanted) / len(used) if used else 0.0


def _related(pair: tuple[str, str], source: str) -> float:
    """Of neighbours among a text's grounded words, the share that are near in the source too."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words(source)):
        if word not in STOPWORDS:
            places.setdefault(word[:STEM_CHARS], []).append(place)
    num_neighbours = num_near = 0
    for text in pair:
        stems = [word[:STEM_CHARS] for word in words(text) if word not in STOPWORDS]
        grounded = [stem for stem in stems if stem in places]
        for one, other in pairwise(grounded):
            if one != other:
                num_neighbours += 1
                num_near += any(abs(a - b) <= NEAR for a in places[one] for b in places[other])
    return num_near / num_neighbours if num_neighbours else 0.0


def _copied(text: str, source: str) -> float:
    """The share of a text's words that stand in runs of the source."""
    source_runs, prose = set(_runs(words(source), COPY_RUN)), words(text)
    copied: set[int] = set()
    for start, run in enumerate(_runs(prose, COPY_RUN)):
        if run in source_runs:
            copied.update(range(start, start + COPY_RUN))
    return len(copied) / len(prose) if prose else 0.0


def _new_pairs(text: str) -> float:
    pairs = _runs(words(text), 2)
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def _ordered(pair: tuple[str, str]) -> float:
    """1 for words in the order of English, 0 for words in any order."""
    together = (gain(" ".join(pair)) - NO_ORDER) / (FULL_ORDER - NO_ORDER)
    alone = [(gain(text) - NO_ORDER_ALONE) / (FULL_ORDER_ALONE - NO_ORDER_ALONE) for text in pair]
    return min(1.0, max(0.0, min(together, *alone)))


def _prose(rule: GateRule, text: str) -> float:
    """0 for texts without the shape of prose, else 1."""
    prose = words(text)
    if not prose or any(len(token) > MAX_WORD_CHARS for token in tokens(text)):
        return 0.0
    stop = sum(word in STOPWORDS for word in prose) / len(prose)
    num_sentences = sum(token.rstrip("\"')")[-1:] in (".", "!", "?") for token in tokens(text))
    has_sentences = num_sentences > 0 and len(prose) / num_sentences <= rule.max_sentence
    return float(rule.min_stop <= stop <= rule.max_stop and has_sentences)


def _runs(text_words: list[str], size: int) -> list[tuple[str, ...]]:
    return list(zip(*(text_words[start:] for start in range(size)), strict=False))
