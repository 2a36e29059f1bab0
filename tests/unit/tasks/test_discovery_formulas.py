"""Formulas: what is one, what is refused, and when two have one form."""

import math
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.discovery.formulas import coefficients, parse, value, with_coefficients, written
from troupe_tasks.discovery.judging import fitted, is_same_form, nmse, score, solved
from troupe_tasks.discovery.laws import SHAPES, drawn_key, held_out, law

NAMES = ("x", "y", "z")
POINT = {"x": 2.0, "y": 3.0, "z": 4.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*x**1.5", 2 * 2**1.5),
        ("x^2 + y", 7.0),
        ("-x*y", -6.0),
        ("-(x - 5)", 3.0),
        ("sqrt(z)*exp(-x)", 2 * math.exp(-2)),
        ("abs(x - y)/log(z)", 1 / math.log(4)),
        ("1e3*x", 2000.0),
        ("+x", 2.0),
    ],
)
def test_value_on_each_shape_then_is_that_of_arithmetic(text: str, expected: float) -> None:
    node = parse(text, NAMES)
    assert node is not None
    assert value(node, POINT) == pytest.approx(expected)
    again = parse(written(node), NAMES)
    assert again is not None
    assert value(again, POINT) == pytest.approx(expected, rel=1e-5)


REFUSED = [
    "",
    "__import__('os').system('id')",
    "x.__class__",
    "().__class__",
    "x if y else z",
    "lambda: 1",
    "[x for x in y]",
    "x; y",
    "w + 1",
    "True",
    "'x'",
    "x(2)",
    "exp",
    "exp(x, y)",
    "exp(x=2)",
    "1j*x",
    "x // y",
    "x % y",
    "x == y",
    "10**400 * 1e999",
    "9" * 300,
    "\uff11 + x",
    "\u0445 + 1",
    "(" * 200 + "x" + ")" * 200,
    "-" * 300 + "x",
    "+".join(["x"] * 40),
    "x" * 1_000_000,
    "(" * 1_000_000,
    "x\0",
    "f'{x}'",
    "x := 2",
    "*x",
    "x[0]",
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_parse_on_hostile_text_then_refuses_at_once(text: str) -> None:
    begun = time.process_time()
    assert parse(text, NAMES) is None
    assert time.process_time() - begun < 0.1


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9",
        "exp(exp(exp(x)))",
        "x**y**z**9",
        "1/(x-2)",
        "log(x-2)",
        "sqrt(-x)",
        "(0-x)**0.5",
    ],
)
def test_value_when_there_is_none_then_is_none_at_once(text: str) -> None:
    node = parse(text, NAMES)
    assert node is not None
    begun = time.process_time()
    assert value(node, POINT) is None
    assert time.process_time() - begun < 0.1


def test_nmse_of_the_mean_then_is_one_and_scores_nothing() -> None:
    readings = [({"x": float(n)}, float(n * n)) for n in range(1, 9)]
    mean = sum(y for _, y in readings) / 8
    node = parse(f"{mean}", ["x"])
    assert node is not None
    assert nmse(node, readings) == pytest.approx(1.0)
    assert score(nmse(node, readings)) == 0.0
    assert score(0.0) == 1.0
    assert score(math.inf) == 0.0


def test_nmse_when_a_formula_has_no_value_then_is_infinite() -> None:
    node = parse("1/(x-2)", ["x"])
    assert node is not None
    assert nmse(node, [({"x": 2.0}, 1.0), ({"x": 3.0}, 2.0)]) == math.inf


@pytest.mark.parametrize(
    ("law_text", "text", "is_same"),
    [
        ("2 * x**1.5 * y", "7 * x**1.5 * y", True),
        ("2 * x**1.5 * y", "2 * x**1.52 * y", True),  # an exponent goes to the nearest quarter
        ("2 * x**1.5 * y", "2 * x**2 * y", False),
        ("2 * x**1.5 * y", "2 * x * sqrt(x) * y", True),
        ("2 * x**1.5 * y", "2 * x**1.5 + y", False),
        ("3 * x / (2 + y)", "x / (1 + y)", False),  # no number to be moved
        ("3 * x / (2 + y)", "x / (0.9 + 0.5*y)", True),
        ("3 * x / (2 + y)", "x * exp(-0.3*y)", False),
        ("3 * x * exp(-0.4 * y)", "2 * x / exp(0.5 * y)", True),
        ("2 * sqrt(x + 3 * y)", "sqrt(4*x + 9*y)", True),
        ("2 * x * log(3 + y)", "2 * x * (1 + 0.2*y)", False),
        ("2 * x * y", "2 * x * y + 0.1 * x * x + 0.1 * y * y + 0.2 * x", False),  # too long
    ],
)
def test_is_same_form_then_lets_coefficients_differ_and_nothing_else(
    law_text: str, text: str, is_same: bool
) -> None:
    truth, node = parse(law_text, NAMES), parse(text, NAMES)
    assert truth is not None and node is not None
    points = [{"x": 0.5 + 0.31 * n % 7, "y": 0.5 + 0.73 * n % 7} for n in range(64)]
    readings = [(p, v) for p in points if (v := value(truth, p)) is not None]
    assert is_same_form(node, truth, readings) == is_same


def test_fitted_when_readings_are_noisy_then_finds_the_coefficients() -> None:
    node = parse("1 * x**2 / (1 + y)", NAMES)
    assert node is not None
    points = [({"x": x, "y": y}, 3.5 * x**2 / (2 + y) * (1 + 0.01 * (-1) ** (x + y)))
              for x in (1, 2, 3, 4) for y in (1, 2, 4)]  # fmt: skip
    found = coefficients(fitted(node, points))
    assert found[0] / 3.5 == pytest.approx(1.0, abs=0.05)
    assert found[1] == pytest.approx(2.0, abs=0.25)


def test_solved_then_is_the_solution_and_none_where_there_is_none() -> None:
    assert solved([[0.0, 2.0], [1.0, 1.0]], [4.0, 5.0]) == pytest.approx([3.0, 2.0])
    assert solved([[1.0, 1.0], [1.0, 1.0]], [1.0, 2.0]) is None


@given(st.randoms(use_true_random=False), st.sampled_from(list(SHAPES)))
def test_law_when_drawn_then_is_finite_at_every_hidden_point_and_its_own_form(
    rng: Random, shape: str
) -> None:
    key = drawn_key(rng, (shape,), "invented")
    found, points = law(key), held_out(key)
    assert nmse(found.formula, points) == 0.0
    assert len({round(measured, 9) for _, measured in points}) > 32
    numbers = [number * 1.02 for number in coefficients(found.formula)]
    assert is_same_form(with_coefficients(found.formula, numbers), found.formula, points)
