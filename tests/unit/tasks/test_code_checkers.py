"""Comparison of outputs, and plain values on their way out of the sandbox."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.code.checkers import text_is_right, value_is_right
from troupe_tasks.code.problem import Checker, TestCase
from troupe_tasks.code.values import (
    UnreadableError,
    decode,
    decode_text,
    encode,
    parse_arguments,
    parse_literal,
)

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("kind", "expected", "output", "is_right"),
    [
        ("tokens", "1 2\n3\n", "1  2 3", True),
        ("tokens", "1 2", "12", False),
        ("tokens", "1", "1.0", False),
        ("tokens", "", " \n", True),
        ("tokens", "", "0", False),
        ("lines", "1 2\n3\n", "1 2 3\n", False),
        ("lines", "1 2\n3\n", "\n1  2 \n3", True),
        ("exact", "a\n", "a", False),
        ("exact", "a\n", "a\n", True),
        ("float", "0.5 x", "0.5000001 x", True),
        ("float", "0.5", "0.51", False),
        ("float", "1000000", "1000000.5", True),
        ("float", "1000000000", "1000000001", False),
        ("float", "1000000000", "1000000001.0", False),
        ("float", "1000000000", "1.000000001e9", False),
        ("float", "1000000000", "1e9", True),
        ("float", "-1000000000", "-1000000000.000", True),
        ("float", "1000000000", "1e99999999", False),
        ("float", "0.5", "nan", False),
        ("float", "inf", "inf", True),
        ("float", "NaN", "nan", True),
        ("float", "NaN", "1", False),
        ("float", "0011", "0011", True),
        ("float", "0011", "11", False),
        ("float", "0", "0.0", True),
        ("float", "0.50", "0.5", True),
        ("float", "1000", "1_000", False),
        ("float", "1", "1 1", False),
        ("float", "1", "1e0", True),
        ("float", "1", "0x1", False),
        ("unordered", "a b\nc\n", "c\na b", True),
        ("unordered", "a b\nc\n", "b a\nc", False),
        ("unordered", "a\na\n", "a\n", False),
    ],
)
def test_text_is_right_for_each_kind_then_equals_the_hand_verdict(
    kind: Any, expected: str, output: str, is_right: bool
) -> None:
    assert text_is_right(Checker(kind=kind), TestCase(output=expected), output) is is_right


@pytest.mark.parametrize(
    ("checker", "expected", "value", "is_right"),
    [
        (Checker(kind="exact"), "(1, 2)", [1, 2], False),
        (Checker(kind="exact", tuples_as_lists=True), "(1, [2])", [1, (2,)], True),
        (Checker(kind="exact"), "{1, 2}", {2, 1}, True),
        (Checker(kind="exact"), "1", 1.0, True),
        (Checker(kind="exact"), "'1'", 1, False),
        (Checker(kind="exact"), "None", None, True),
        (Checker(kind="exact"), "None", 0, False),
        (Checker(kind="unordered"), "[[1], [2]]", [[2], [1]], True),
        (Checker(kind="unordered"), "[1, 1, 2]", [1, 2, 2], False),
        (Checker(kind="unordered"), "[1]", (1,), False),
        (Checker(kind="float"), "[0.1, {'a': 2}]", [0.1 + 1e-9, {"a": 2.0}], True),
        (Checker(kind="float"), "[0.1]", [0.1, 0.1], False),
        (Checker(kind="float"), "[1000000000]", [1000000001], False),
        (Checker(kind="float"), "[1000000000]", [1000000001.0], False),
        (Checker(kind="float"), "[1000000000]", [1e9], True),
        (Checker(kind="float"), "1000000000.5", 1000000000.6, True),
        (Checker(kind="float"), "1", True, True),
        (Checker(kind="float"), "2", True, False),
        (Checker(kind="float"), "1", float("nan"), False),
        (Checker(kind="float"), "1", 10**400, False),
        (Checker(kind="exact"), "not a literal", "not a literal", False),
    ],
)
def test_value_is_right_for_each_kind_then_equals_the_hand_verdict(
    checker: Checker, expected: str, value: object, is_right: bool
) -> None:
    assert value_is_right(checker, TestCase(output=expected), value) is is_right


def test_is_right_when_there_are_alternatives_then_each_of_them_counts() -> None:
    test = TestCase(output="a", alternatives=("b", "c"))
    rights = [text_is_right(Checker(), test, text) for text in ("a", "b", "c", "d")]
    assert rights == [True, True, True, False]


@given(plain)
def test_encode_when_decoded_then_is_the_same_value_and_type(value: object) -> None:
    back = decode(encode(value))
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, set | list | tuple | dict)


@given(st.text(max_size=60))
def test_decode_text_of_anything_then_reads_a_value_or_says_unreadable(text: str) -> None:
    try:
        decode_text(text)
    except UnreadableError:
        return


@pytest.mark.parametrize(
    "data",
    [
        {"x": 1},
        {"t": 1},
        {"d": [1]},
        {"d": [[[1], 2]]},
        {"f": "1e5"},
        {"b": "zz"},
        {"c": [10**400, 0]},
        {},
    ],
)
def test_decode_of_a_wrong_form_then_says_unreadable(data: object) -> None:
    with pytest.raises(UnreadableError):
        decode(data)


def test_decode_when_nested_too_deep_then_says_unreadable() -> None:
    data: list[Any] = []
    for _ in range(200):
        data = [data]
    with pytest.raises(UnreadableError, match="deep"):
        decode(data)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "1 +", "(1", "f(2)", "-" * 4000 + "1", "[" * 3000, "x"]
)
def test_parse_literal_of_code_or_rubbish_then_says_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_literal(text)


def test_parse_arguments_when_it_is_no_tuple_then_says_what_to_write() -> None:
    assert parse_arguments("(1, 'a')") == (1, "a")
    with pytest.raises(UnreadableError, match="tuple"):
        parse_arguments("1")


_MODULUS = 2**61 - 1
"""Python's hash of an integer is its remainder; so multiples share one."""


@pytest.mark.parametrize("tag", ["s", "d"])
@pytest.mark.parametrize("item", [lambda n: n, lambda n: {"t": [n]}, lambda n: {"s": [n]}])
def test_decode_when_a_program_returns_values_of_one_hash_then_is_refused_at_once(
    tag: str, item: Callable[[int], object]
) -> None:
    values = [item(_MODULUS * number) for number in range(1, 8000)]
    body = [[value, 0] for value in values] if tag == "d" else values
    began = time.process_time()
    with pytest.raises(UnreadableError, match="one hash"):
        decode({tag: body})
    assert time.process_time() - began < 1.0
    assert decode({tag: body[:8]}) == decode({tag: body[7::-1]})


def test_value_is_right_when_a_long_answer_is_in_another_order_then_is_judged_at_once() -> None:
    wanted = [[number] for number in range(30_000)]
    test = TestCase(input="()", output=repr(wanted))
    began = time.process_time()
    assert value_is_right(Checker(kind="unordered"), test, wanted[::-1])
    assert not value_is_right(Checker(kind="unordered"), test, [*wanted[1:], [1]])
    colliding = [_MODULUS * number for number in range(30_000)]
    assert not value_is_right(Checker(kind="unordered"), test, colliding)
    assert time.process_time() - began < 60.0
