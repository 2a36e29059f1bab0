"""What tests say, whatever their spelling: to find one that repeats another."""

from troupe_tasks.code.checkers import MAX_NUMBER_CHARS
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.values import UnreadableError, Value, parse_literal

_LARGEST_WHOLE = 2.0**53


def meaning(problem: Problem, test: TestCase) -> tuple[list[str], list[str]]:
    """Input and output of ``test`` as words; those of two spellings of one test are equal."""
    read = _words if problem.kind == "stdin" else _literal
    return read(test.input), read(test.output)


def _words(text: str) -> list[str]:
    return [_number(word) for word in text.split()]


def _number(word: str) -> str:
    """``+03`` and ``3.0`` are the number 3."""
    if len(word) > MAX_NUMBER_CHARS:
        return word
    try:
        number = float(word)
    except ValueError:
        return word
    return str(int(number)) if abs(number) < _LARGEST_WHOLE and number.is_integer() else word


def _literal(text: str) -> list[str]:
    """One word: ``(1, [2])``, ``(1.0, (2,))`` and ``(True, [2])`` are the same."""
    try:
        return [repr(_plain(parse_literal(text)))]
    except (UnreadableError, RecursionError):
        return ["".join(text.split())]


def _plain(value: Value) -> Value:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return ("set", sorted(repr(_plain(item)) for item in value))
    if isinstance(value, dict):
        return ("dict", sorted(repr((_plain(k), _plain(v))) for k, v in value.items()))
    if isinstance(value, complex) and not value.imag:
        value = value.real
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value
