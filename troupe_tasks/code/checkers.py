"""Decides whether an output is right: pure comparisons, made outside the sandbox.

Both sides are text, or plain values that were rebuilt from data: a program cannot bring an
object of its own here, so no ``__eq__`` of its making is ever called.
"""

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from decimal import Decimal

from troupe_tasks.code.problem import Checker, TestCase
from troupe_tasks.code.values import UnreadableError, Value, hashable, parse_literal

MAX_NUMBER_CHARS = 64
"""Longer tokens are compared as text, never parsed as numbers."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_CODE = re.compile(r"0[0-9]+")
"""Bits and the like, whose leading zeros count."""


def text_is_right(checker: Checker, test: TestCase, output: str) -> bool:
    """Whether the standard output of a program is one of the right ones."""
    return any(_same_text(checker, right, output) for right in (test.output, *test.alternatives))


def value_is_right(checker: Checker, test: TestCase, value: Value) -> bool:
    """Whether the result of a call is one of the right ones."""
    for literal in (test.output, *test.alternatives):
        try:
            expected = parse_literal(literal)
        except UnreadableError:
            continue
        if _same_value(checker, expected, value):
            return True
    return False


def _same_text(checker: Checker, expected: str, output: str) -> bool:
    if checker.kind == "exact":
        return expected == output
    if checker.kind == "lines":
        return _lines(expected) == _lines(output)
    if checker.kind == "unordered":
        return Counter(map(tuple, _lines(expected))) == Counter(map(tuple, _lines(output)))
    wanted, printed = expected.split(), output.split()
    if checker.kind == "float":
        return len(wanted) == len(printed) and all(
            _same_number(w, f, checker.tolerance) for w, f in zip(wanted, printed, strict=True)
        )
    return wanted == printed


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def _same_number(wanted: str, printed: str, tolerance: float) -> bool:
    if wanted == printed:
        return True
    if max(len(wanted), len(printed)) > MAX_NUMBER_CHARS:
        return False
    if _CODE.fullmatch(wanted) or "_" in wanted + printed:  # Python alone reads 1_000 as a number
        return False
    try:
        if _WHOLE.fullmatch(wanted) and _is_whole(given := Decimal(printed)):
            return int(wanted) == given
        return _close(float(wanted), float(printed), tolerance)
    except (ValueError, ArithmeticError):
        return False


def _is_whole(number: Decimal) -> bool:
    """Whole numbers are compared exactly: 10**9 + 999 is within a tolerance of 10**9."""
    return number.is_finite() and number == number.to_integral_value()


def _close(wanted: float, printed: float, tolerance: float) -> bool:
    if not (math.isfinite(wanted) and math.isfinite(printed)):
        return wanted == printed or (math.isnan(wanted) and math.isnan(printed))
    return math.isclose(wanted, printed, rel_tol=tolerance, abs_tol=tolerance)


def _same_value(checker: Checker, expected: Value, value: Value) -> bool:
    if checker.tuples_as_lists:
        expected, value = _as_lists(expected), _as_lists(value)
    if checker.kind == "unordered" and _is_sequence(expected) and _is_sequence(value):
        return type(expected) is type(value) and _same_elements(expected, value)
    if checker.kind == "float":
        return _close_values(expected, value, checker.tolerance)
    return _equal(expected, value)


def _equal(expected: Value, value: Value) -> bool:
    try:
        return bool(expected == value)
    except RecursionError:
        return False


def _is_sequence(value: Value) -> bool:
    return isinstance(value, list | tuple)


def _as_lists(value: Value) -> Value:
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return value


def _same_elements(expected: Sequence[Value], value: Sequence[Value]) -> bool:
    """The same values as often, in time linear in their number."""
    if len(expected) != len(value):
        return False
    try:
        return Counter(hashable(map(_frozen, expected))) == Counter(hashable(map(_frozen, value)))
    except (UnreadableError, RecursionError):
        return False


def _frozen(value: Value) -> Hashable:
    """What equals another such value exactly when the values are equal."""
    if isinstance(value, list | tuple):
        return (type(value), *map(_frozen, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_frozen, value))
    if isinstance(value, dict):
        return (dict, frozenset((_frozen(k), _frozen(v)) for k, v in value.items()))
    return value


def _is_whole_float(value: Value) -> bool:
    return isinstance(value, float) and value.is_integer()


def _close_values(expected: Value, value: Value, tolerance: float) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return _equal(expected, value)
    if isinstance(expected, int) and (isinstance(value, int) or _is_whole_float(value)):
        return bool(expected == value)
    if isinstance(expected, int | float) and isinstance(value, int | float):
        try:
            return _close(float(expected), float(value), tolerance)
        except OverflowError:
            return expected == value
    if isinstance(expected, list | tuple) and isinstance(value, list | tuple):
        is_alike = type(expected) is type(value) and len(expected) == len(value)
        return is_alike and all(
            _close_values(e, v, tolerance) for e, v in zip(expected, value, strict=True)
        )
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(
            _close_values(item, value[key], tolerance) for key, item in expected.items()
        )
    return _equal(expected, value)
