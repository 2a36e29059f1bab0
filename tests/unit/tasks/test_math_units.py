"""Which words at the end of an answer are its unit, and which make another answer of it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.math.literal import read_literal
from troupe_tasks.math.units import without_unit


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (r"12\pi\text{ cm}^2", r"12\pi"),
        (r"12\pi \mathrm{cm}^{3}", r"12\pi"),
        (r"12\pi\mbox{ cm}^2", r"12\pi"),
        (r"12\pi\text{ cm^2}", r"12\pi"),
        (r"12\pi\text{ square units}", r"12\pi"),
        (r"12\pi\text{ ways}", r"12\pi"),
        (r"12\pi cm", r"12\pi"),
        (r"$2\sqrt{3}\text{ m}$.", r"$2\sqrt{3}"),
        (r"\frac{1}{2}\text{ of the cake}", r"\frac{1}{2}"),
        (r"x^2\text{ cm}^2", "x^2"),
        (r"5x\text{ dollars}", "5x"),
        (r"5\text{ m}/\text{s}", "5"),
        (r"5\,\text{m}\,\text{s}^{-1}", "5"),
        (r"5\frac{\text{m}}{\text{s}}", "5"),
        ("5 m/s", "5"),
        ("60km/h", "60"),
        ("60 miles per hour", "60"),
        ("36 sq. ft.", "36"),
        ("3/4 cup", "3/4"),
        ("5 red apples", "5"),
        ("1e3 apples", "1e3"),
        ("10 a day", "10"),
        (r"3920 \mathrm{~N}-\mathrm{m}", "3920"),
        (r"4:30\text{ p.m.}", "4:30"),
        ("l^{2} / 8$ square feet", "l^{2} / 8"),
    ],
)
def test_without_unit_when_a_unit_ends_the_answer_then_is_what_stands_before_it(
    text: str, rest: str
) -> None:
    assert without_unit(text) == rest


@pytest.mark.parametrize(
    "text",
    [
        r"12\pi\mathrm{i}",
        r"12\pi\mathrm{e}",
        r"12\pi\text{ million}",
        r"12\pi\text{ or so}",
        r"12\pi\text{ squared}",
        r"12\pi h",
        r"12\pi xyz",
        r"\pi r^2 h",
        r"n\text{ is odd}",
        r"x + 3c",
        "2xy",
        "7ab^3",
        "7 ab",
        "5 a m",
        "20 x y",
        "-9.8 t",
        r"\frac{1}{m} t",
        "b > a > c",
        "2mg",
        "3t",
        "5m/s",
        "5 x/y",
        r"5\frac{m}{s}",
        r"5^\text{m}",
        r"5/\text{day}",
        r"\text{Monday}",
        r"\text{7 cm}",
        "Room 5 north",
        "5 pi",
        "5 sin x",
        "5 plus x",
        "5 hundred cm",
        "5 cm and a half",
        "",
    ],
)
def test_without_unit_when_the_words_may_mean_more_then_keeps_them(text: str) -> None:
    assert without_unit(text) == text


@given(st.text("5\\text{}mrath cms^2/ .$~,", max_size=80))
def test_without_unit_of_any_text_then_is_a_beginning_of_it(text: str) -> None:
    rest = without_unit(text)
    assert text.startswith(rest)
    assert bool(rest) == bool(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5 m/s", Fraction(5)),
        (r"9.8\,\mathrm{m}\,\mathrm{s}^{-2}", Fraction(49, 5)),
        (r"20^\circ\text{C}", Fraction(20)),
        (r"15\mbox{ cm}^2", Fraction(15)),
        ("50% of people", Fraction(50)),
        ("5e", None),
        (r"5\mathrm{i}", None),
        (r"5\text{e}", None),
        ("5 pi", None),
        ("5 squared", None),
        ("3 tenths", None),
        ("2xy", None),
        ("7ab^3", None),
        (r"7\mbox{ million}", None),
        ("5 hours and a half", None),
        (r"5 million\text{ dollars}", None),
    ],
)
def test_read_literal_when_words_follow_then_reads_numbers_with_units_only(
    text: str, value: Fraction | None
) -> None:
    literal = read_literal(text)
    assert (literal.value if literal else None) == value
