"""The published rewards of the CoMLRL writing tasks: four levels, each open when the last paid.

Source: the reward functions of https://github.com/OpenMLRL/LLM_Collab_Writing for TLDR and arXiv
(Liu et al., arXiv 2508.04652, section on article writing). Where their documentation and their
code differ, this is what the code computes: unique words are counted with stop words, and arXiv's
length band is 1.3 to 1.6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from troupe_tasks.writing.words import categories_of, categories_within, jaccard, tokens, words

STRUCTURE, LENGTH, VOCABULARY, STYLE = 0.5, 1.0, 0.5, 1.0
MAX_REWARD = STRUCTURE + LENGTH + VOCABULARY + STYLE

TRANSITION_WEIGHT, JACCARD_WEIGHT = 0.4, 0.6
FIRST_CATEGORY, NEXT_CATEGORY = 0.4, 0.05


@dataclass(frozen=True, slots=True)
class Band:
    """Pays 1 from ``low`` to ``high``, falling to 0 at ``zero_low`` and ``zero_high``.

    An infinite ``high`` has no upper side.

    Example: ``Band(1.1, 1.6, 3.2, 5.0).pay(1.35) == 0.5``.
    """

    zero_low: float
    low: float
    high: float
    zero_high: float

    def pay(self, value: float) -> float | None:
        """From 0 to 1, or None outside of the band, which ends the reward there."""
        if not self.zero_low <= value <= self.zero_high:
            return None
        if value < self.low:
            return (value - self.zero_low) / (self.low - self.zero_low)
        if value > self.high:
            return 1.0 - (value - self.high) / (self.zero_high - self.high)
        return 1.0


@dataclass(frozen=True, slots=True)
class Formula:
    """The numbers in which the two published rewards differ.

    ``min_tokens`` to ``max_tokens`` is each text's length in white-space tokens;
    ``transitions_in_both`` says whether both texts or the second alone are searched.
    """

    min_tokens: int
    max_tokens: int
    length: Band
    vocabulary: Band
    jaccard_cap: float
    transitions_in_both: bool


INFINITE = float("inf")

TLDR = Formula(
    min_tokens=8,
    max_tokens=256,
    length=Band(1.1, 1.6, 3.2, 5.0),
    vocabulary=Band(1.3, 2.0, INFINITE, INFINITE),
    jaccard_cap=0.03,
    transitions_in_both=False,
)
ARXIV = Formula(
    min_tokens=128,
    max_tokens=256,
    length=Band(0.8, 1.3, 1.6, 2.0),
    vocabulary=Band(0.5, 0.7, 1.3, 1.7),
    jaccard_cap=0.23,
    transitions_in_both=True,
)


@dataclass(frozen=True, slots=True)
class Score:
    """What each level paid, in the order of the levels; 0 for levels that did not open."""

    structure: float = 0.0
    length: float = 0.0
    vocabulary: float = 0.0
    style: float = 0.0

    @property
    def total(self) -> float:
        """The reward, from 0 to ``MAX_REWARD``."""
        return self.structure + self.length + self.vocabulary + self.style


def score(
    formula: Formula,
    first: str,
    second: str,
    transitions: Mapping[str, tuple[str, ...]],
    *,
    is_strict: bool,
) -> Score:
    """The published reward of a pair of texts; ``is_strict`` finds transitions as whole words."""
    if not (_is_in_range(formula, first) and _is_in_range(formula, second)):
        return Score()
    length = formula.length.pay(len(second) / len(first))
    if length is None:
        return Score(STRUCTURE)
    num_unique = len(set(words(first)))
    ratio = len(set(words(second))) / num_unique if num_unique else 0.0
    vocabulary = formula.vocabulary.pay(ratio)
    if vocabulary is None or not num_unique:
        return Score(STRUCTURE, LENGTH * length)
    count = categories_of if is_strict else categories_within
    style = _style(formula, first, second, count, transitions)
    return Score(STRUCTURE, LENGTH * length, VOCABULARY * vocabulary, STYLE * style)


def _is_in_range(formula: Formula, text: str) -> bool:
    return formula.min_tokens <= len(tokens(text)) <= formula.max_tokens


def _style(
    formula: Formula,
    first: str,
    second: str,
    count: Callable[[str, Mapping[str, tuple[str, ...]]], int],
    transitions: Mapping[str, tuple[str, ...]],
) -> float:
    searched = f"{first} {second}" if formula.transitions_in_both else second
    num_found = count(searched, transitions)
    flow = min(1.0, FIRST_CATEGORY + NEXT_CATEGORY * (num_found - 1)) if num_found else 0.0
    overlap = min(jaccard(first, second), formula.jaccard_cap) / formula.jaccard_cap
    return TRANSITION_WEIGHT * flow + JACCARD_WEIGHT * overlap
