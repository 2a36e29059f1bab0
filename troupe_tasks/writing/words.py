"""Counts words, word sets and transition words of a text, as the published rewards count them.

Source of the counting rules: the reference implementation of the CoMLRL writing tasks
(https://github.com/OpenMLRL/LLM_Collab_Writing). The word lists are this project's own: the
categories are the published ones, the words in them are not copied.
"""

import re
from collections.abc import Mapping

MAX_TEXT_CHARS = 8_000
"""A longer text is read up to here; no length gate lets so long a text through."""

_WORD = re.compile(r"\b\w+\b")

_STOPWORDS = """
    a about after all also am an and any are as at be because been before being both but by can
    could did do does each even ever few for from get got had has have he her here him his how i
    if in into is it its just like may me might more most much my no nor not now of off on once
    only or other our out over own s same she should so some such t than that the their them then
    there these they this those to too under until up us very was we were what when where which
    while who whom why will with would you your
"""
STOPWORDS = frozenset(_STOPWORDS.split())
"""Words that carry no content."""

TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "elaboration": ("in addition", "furthermore", "moreover", "additionally", "besides", "also"),
    "examples": ("for example", "for instance", "such as", "in particular", "specifically"),
    "explanation": ("in other words", "that is", "to be precise", "this means", "in essence"),
    "cause_effect": ("therefore", "as a result", "consequently", "because of", "thus", "hence"),
    "contrast": ("however", "in contrast", "on the other hand", "whereas", "instead", "but"),
    "sequence": ("first", "second", "next", "finally", "afterwards", "to begin with", "then"),
    "emphasis": ("indeed", "in fact", "certainly", "above all", "of course", "clearly"),
    "summary": ("in summary", "overall", "in short", "to sum up", "in conclusion", "altogether"),
    "comparison": ("similarly", "likewise", "in the same way", "compared with", "just as"),
    "concession": ("although", "even though", "despite", "nevertheless", "admittedly", "though"),
    "condition": ("if", "unless", "provided that", "as long as", "in case", "assuming"),
    "time": ("when", "while", "since", "before", "after", "until", "meanwhile", "during"),
}
"""Transition words by category; the twelve categories are the published ones."""


def tokens(text: str) -> list[str]:
    """``text`` split at white space, which is the published token count."""
    return text.split()


def words(text: str) -> list[str]:
    """Words of ``text`` in lower case, in order."""
    return _WORD.findall(text.lower())


def content(text: str) -> frozenset[str]:
    """Distinct words of ``text`` that are no stop words."""
    return frozenset(words(text)) - STOPWORDS


def jaccard(first: str, second: str) -> float:
    """Overlap of two texts' content words, from 0 to 1; 1 when neither has any."""
    first_words, second_words = content(first), content(second)
    union = first_words | second_words
    return len(first_words & second_words) / len(union) if union else 1.0


def categories_within(text: str, transitions: Mapping[str, tuple[str, ...]]) -> int:
    """Categories of which any entry occurs in ``text`` as a substring: the published rule.

    So ``if`` is found in ``life``; ``categories_of`` is the strict count.
    """
    lowered = text.lower()
    return sum(any(entry in lowered for entry in entries) for entries in transitions.values())


def categories_of(text: str, transitions: Mapping[str, tuple[str, ...]]) -> int:
    """Categories of which any entry occurs in ``text`` as whole words."""
    padded = f" {' '.join(words(text))} "
    return sum(
        any(f" {' '.join(words(entry))} " in padded for entry in entries)
        for entries in transitions.values()
    )
