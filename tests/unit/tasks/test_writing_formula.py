"""The published writing rewards against numbers worked by hand, and the gate against cheats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.writing.formula import ARXIV, MAX_REWARD, TLDR, Band, Formula, Score, score
from troupe_tasks.writing.gate import TLDR_GATE, gate
from troupe_tasks.writing.posts import POSTS
from troupe_tasks.writing.words import TRANSITIONS, categories_of, categories_within, jaccard


def _words(count: int, *, prefix: str = "w", width: int = 4) -> str:
    """``count`` distinct words of ``width`` characters, one space between."""
    return " ".join(f"{prefix}{number:0{width - len(prefix)}d}" for number in range(count))


def _score(formula: Formula, first: str, second: str, *, is_strict: bool = False) -> Score:
    return score(formula, first, second, TRANSITIONS, is_strict=is_strict)


@pytest.mark.parametrize(
    ("value", "pay"),
    [(1.0, None), (1.1, 0.0), (1.35, 0.5), (1.6, 1.0), (3.2, 1.0), (4.1, 0.5), (5.1, None)],
)
def test_band_on_each_side_then_rises_holds_and_falls(value: float, pay: float | None) -> None:
    paid = Band(1.1, 1.6, 3.2, 5.0).pay(value)
    assert paid is None if pay is None else paid == pytest.approx(pay)


def test_tldr_when_a_text_has_seven_tokens_then_pays_nothing() -> None:
    assert _score(TLDR, _words(7), _words(20)).total == 0.0
    assert _score(TLDR, _words(8), _words(257)).total == 0.0


def test_tldr_when_lengths_are_equal_then_stops_after_the_first_level() -> None:
    assert _score(TLDR, _words(10), _words(10)) == Score(0.5)


def test_tldr_when_every_level_is_worked_by_hand_then_adds_up() -> None:
    # 10 words of 4 characters: 49 characters. 27 of them: 134, ratio 2.73: full 1.0.
    # 27 distinct words to 10: ratio 2.7: full 0.5. No transition word in either.
    # All 10 words of the first are in the second: Jaccard 10/27, over the cap 0.03: full 0.6.
    paid = _score(TLDR, _words(10), _words(27))
    assert paid == Score(0.5, 1.0, 0.5, pytest.approx(0.6))
    # One category ("moreover") adds 0.4 * 0.4, and five characters hardly move the ratio.
    paid = _score(TLDR, _words(10), f"{_words(25)} moreover")
    assert paid.style == pytest.approx(0.6 + 0.4 * 0.4)
    # Three categories: 0.4 * (0.4 + 2 * 0.05).
    paid = _score(TLDR, _words(10), f"{_words(20)} moreover whereas overall")
    assert paid.style == pytest.approx(0.6 + 0.4 * 0.5)


def test_tldr_when_vocabulary_hardly_grows_then_stops_before_style() -> None:
    # Ratio of characters 99/49 = 2.02, but 10 distinct words in both: 1.0 < 1.3.
    assert _score(TLDR, _words(10), f"{_words(10)} {_words(10)}") == Score(0.5, 1.0)


def test_tldr_when_vocabulary_grows_by_two_thirds_then_pays_its_share() -> None:
    # 15 distinct words twice, 149 characters to 49: full length. 15/10 = 1.5 pays 0.5 * 0.2/0.7.
    paid = _score(TLDR, _words(10), f"{_words(15)} {_words(15)}")
    assert paid.vocabulary == pytest.approx(0.5 * 0.2 / 0.7)


def test_tldr_when_little_is_shared_then_jaccard_pays_up_to_its_cap() -> None:
    # Nothing shared: 0. One word of 10 + 90 - 1 = 99: 1/99 of the cap's 0.03.
    other = _words(27, prefix="v")
    assert _score(TLDR, _words(10), other).style == 0.0
    second = f"{_words(50, prefix='v', width=2)} w000"
    first = " ".join(f"w{n:03d}xxxxxx" for n in range(1, 10)) + " w000"
    paid = _score(TLDR, first, second)
    assert paid.style == pytest.approx(0.6 * (1 / 60) / 0.03)


def test_arxiv_when_every_level_is_worked_by_hand_then_adds_up() -> None:
    # 128 words of 4 characters: 639. 180: 899, ratio 1.407: full. 180/128 = 1.406 distinct:
    # 0.5 * (1 - 0.10625/0.4). Jaccard 128/180 over the cap 0.23: 0.6. No transitions.
    paid = _score(ARXIV, _words(128), _words(180))
    assert paid.length == 1.0
    assert paid.vocabulary == pytest.approx(0.5 * (1 - (180 / 128 - 1.3) / 0.4))
    assert paid.style == pytest.approx(0.6)


def test_arxiv_when_a_transition_is_in_the_first_text_then_counts_and_in_tldr_it_does_not() -> None:
    first = f"{_words(130)} moreover"
    assert _score(ARXIV, first, _words(185)).style == pytest.approx(0.6 + 0.4 * 0.4)
    first = f"{_words(10)} moreover"
    assert _score(TLDR, first, _words(30)).style == pytest.approx(0.6)


def test_categories_when_a_word_hides_in_another_then_only_the_published_count_finds_it() -> None:
    # "if" in life, "but" in butter, "then" and "when" nowhere, "as" is no entry.
    text = "life butter"
    assert categories_within(text, TRANSITIONS) == 2
    assert categories_of(text, TRANSITIONS) == 0
    assert categories_of("If so, for example, stop.", TRANSITIONS) == 2


def test_jaccard_when_worked_by_hand_then_ignores_stop_words_and_case() -> None:
    # {cat, sat, mat} and {cat, ran}: 1 of 4.
    assert jaccard("The cat sat on the mat", "a CAT ran") == pytest.approx(1 / 4)
    assert jaccard("the of", "and") == 1.0


texts = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from(["the", "cat", "moreover", "if", "pond.", "x" * 50]), max_size=260
    ).map(" ".join),
)


@given(texts, texts, st.booleans())
def test_score_when_texts_are_anything_then_stays_within_the_bound(
    first: str, second: str, is_strict: bool
) -> None:
    for formula in (TLDR, ARXIV):
        assert 0.0 <= _score(formula, first, second, is_strict=is_strict).total <= MAX_REWARD


@given(texts, texts, texts)
def test_gate_when_texts_are_anything_then_only_takes_away(
    source: str, first: str, second: str
) -> None:
    opened = gate(TLDR_GATE, source, first, second)
    assert 0.0 <= opened.factor <= 1.0


@pytest.mark.parametrize("post", POSTS, ids=lambda post: post.title)
def test_gate_when_summaries_are_honest_then_is_open(post: object) -> None:
    assert gate(TLDR_GATE, post.text, post.short, post.detailed).factor == 1.0  # pyright: ignore
