"""Overlap between sets of texts: exact after normalisation, and by shared runs of words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.data.overlap import Match, Texts, near_verbatim, normalised

WORDS = [f"word{n}" for n in range(40)]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("What is  3+4?", "what is 3 + 4"),
        (r"Find $\left( x \right)$.", "find (x)"),
        ("Ⅻ ﬁsh", "XII fish"),
        ("x².", "x^2"),
    ],
)
def test_normalised_when_only_the_writing_differs_then_is_equal(text: str, same: str) -> None:
    assert normalised(text) == normalised(same)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("$3 + 4$", "$3 - 4$"),
        ("3 ± 4", "3 ÷ 4"),
        ("x ≤ 2", "x ≥ 2"),
        ("√2/2", "2/2"),
        ("p ∧ q", "p ⊕ q"),
        ("p & q", "p | q"),
        ("|x-2|=3", "x-2=3"),
        (".5", "5"),
        ("3.14", "3 14"),
        ("⌈x⌉", "⌊x⌋"),
        ("10²", "102"),
        ("किताब", "कोताब"),
    ],
)
def test_normalised_when_the_meaning_differs_then_is_not_equal(text: str, other: str) -> None:
    assert normalised(text) != normalised(other)


def test_near_verbatim_when_more_than_case_and_spacing_differs_then_is_not_equal() -> None:
    assert near_verbatim(" Is\u00a0P(x)\n  e\u0301gal?") == near_verbatim("is p(x) \u00e9gal?")
    assert near_verbatim("2*(3+4)") != near_verbatim("(2*3)+4")


def test_find_when_a_text_has_no_words_then_finds_it_again() -> None:
    assert Texts(["?."]).find(" ?.", min_share=0.5) == Match("exact", 1.0)
    assert Texts(["?."]).find(".?", min_share=0.5) is None
    assert Texts([""]).find(" ", min_share=0.5) is None


def test_find_when_a_text_is_repeated_then_is_exact() -> None:
    match = Texts(["What is 3 + 4?"]).find("WHAT IS $3+4$", min_share=0.5)
    assert match is not None
    assert (match.kind, match.share) == ("exact", 1.0)


def test_find_when_half_of_the_runs_are_shared_then_says_the_share() -> None:
    # 20 words have 8 runs of 13. Of the new text's, words 0-15 keep 4 of these.
    known = Texts([" ".join(WORDS[:20])])
    text = " ".join([*WORDS[:16], *WORDS[30:34]])
    match = known.find(text, min_share=0.5)
    assert match is not None
    assert (match.kind, match.share) == ("ngram", 0.5)
    assert known.find(text, min_share=0.6) is None


def test_find_when_texts_are_short_then_compares_them_exactly_only() -> None:
    known = Texts(["how many cats are there in all"])
    assert known.find("how many cats are there", min_share=0.01) is None


@given(st.lists(st.text(max_size=60), max_size=10), st.text(max_size=60))
def test_find_when_texts_are_anything_then_finds_each_of_its_own(
    texts: list[str], other: str
) -> None:
    known = Texts(texts)
    for text in texts:
        if text.strip():
            assert known.find(text, min_share=1.0) is not None
    match = known.find(other, min_share=0.5)
    assert match is None or 0.5 <= match.share <= 1.0
