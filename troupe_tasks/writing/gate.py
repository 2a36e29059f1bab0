"""Checks missing from the published reward: the texts are about the source, and are prose.

The published formula reads the two outputs only, so one memorised pair earns everything for any
source. The gate is a factor from 0 to 1: it cannot add to the reward, only take away what texts
earn that are off the topic, copied, repetitive, or no prose. It reads words, not meaning.
"""

from dataclasses import dataclass

from troupe_tasks.writing.words import STOPWORDS, content, tokens, words

COPY_RUN = 8
"""Words in a row that count as copied."""

MAX_WORD_CHARS = 32

DETERMINERS = frozenset(("the", "a", "an", "my", "your", "our", "their", "its", "every"))
AFTER_DETERMINER = frozenset(
    ("few", "most", "more", "much", "other", "own", "same", "such", "very")
)
PREPOSITIONS = frozenset(("of", "from", "with", "into", "by", "at", "for", "in", "on", "to"))
NEVER_AFTER_PREPOSITION = frozenset(
    ("of", "from", "into", "by", "for", "to", "and", "or", "but", "is", "are", "was", "were", "has")
) | frozenset(("had", "does", "did", "can", "could", "will", "would", "may", "might", "if", "than"))
"""Pairs that hardly occur in prose and often in shuffled words."""

MAX_DISORDER, NO_ORDER = 0.075, 0.15
"""Share of such pairs up to which a text is in order, and from which on it is in none."""


@dataclass(frozen=True, slots=True)
class GateRule:
    """Shares from which on the gate is fully open; below, it closes in proportion.

    ``min_grounded`` is the share of a text's content words that the source has, ``min_covered`` of
    the source's that the pair has, ``max_copied`` of a text's eight-word runs that are the
    source's, ``min_new_pairs`` of a text's word pairs that are distinct; prose has between
    ``min_stop`` and ``max_stop`` stop words, at most ``max_sentence`` words a sentence, and English
    word order.
    """

    min_grounded: float
    min_covered: float
    max_copied: float = 0.5
    min_new_pairs: float = 0.9
    min_stop: float = 0.2
    max_stop: float = 0.75
    max_sentence: float = 60.0


TLDR_GATE = GateRule(min_grounded=0.35, min_covered=0.2)
ARXIV_GATE = GateRule(min_grounded=0.12, min_covered=0.25)


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's factors, each from 0 to 1; the least of them is how far it is open."""

    grounded: float
    covered: float
    original: float
    varied: float
    ordered: float
    prose: float

    @property
    def factor(self) -> float:
        """What the reward is multiplied by."""
        factors = (self.grounded, self.covered, self.original, self.varied)
        return min(*factors, self.ordered, self.prose)


def gate(rule: GateRule, source: str, first: str, second: str) -> Gate:
    """How far the gate opens for a pair of texts on ``source``."""
    pair = (first, second)
    wanted = content(source)
    covered_words = content(first) | content(second)
    covered = len(wanted & covered_words) / len(wanted) if wanted else 1.0
    return Gate(
        grounded=min(_rising(_grounded(text, wanted), rule.min_grounded) for text in pair),
        covered=_rising(covered, rule.min_covered),
        original=min(_falling(_copied(text, source), rule.max_copied) for text in pair),
        varied=min(_rising(_new_pairs(text), rule.min_new_pairs) for text in pair),
        ordered=min(_ordered(text) for text in pair),
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


def _copied(text: str, source: str) -> float:
    runs, source_runs = _runs(words(text), COPY_RUN), set(_runs(words(source), COPY_RUN))
    return sum(run in source_runs for run in runs) / len(runs) if runs else 0.0


def _new_pairs(text: str) -> float:
    pairs = _runs(words(text), 2)
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def _ordered(text: str) -> float:
    """1 for words in the order of English, 0 for words in any order."""
    pairs = _runs(words(text), 2)
    chances = disorders = 0
    for word, following in pairs:
        if word in DETERMINERS:
            chances += 1
            disorders += following in STOPWORDS and following not in AFTER_DETERMINER
        elif word in PREPOSITIONS:
            chances += 1
            disorders += following in NEVER_AFTER_PREPOSITION
    share = disorders / chances if chances else 0.0
    return min(1.0, max(0.0, (NO_ORDER - share) / (NO_ORDER - MAX_DISORDER)))


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
