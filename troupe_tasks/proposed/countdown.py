"""The number puzzle: make a target of given numbers, each used once, with + - * and parentheses.

Owns the arithmetic: which targets can be made, how, and what an expression is worth. Pure; whatever
the text, the work is bounded.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

MAX_NUMBERS = 4
MAX_CHARS = 80
"""A longer expression is none: four numbers, three operators and parentheses need far less."""
_TOKEN = re.compile(r"\d{1,3}|[-+*()]")
_BLANK = re.compile(r"\s*")
_OPERATORS = {"+": 1, "-": 1, "*": 2}


def value_of(expression: str, numbers: Sequence[int]) -> int | None:
    """What ``expression`` comes to; None unless it uses each of ``numbers`` exactly once.

    Example: ``value_of("( 7 - 2 ) * 3", (2, 3, 7))`` is 15.
    """
    tokens = _tokens(expression)
    if tokens is None or sorted(int(t) for t in tokens if t.isdigit()) != sorted(numbers):
        return None
    return _evaluated(tokens)


def solution_of(numbers: Sequence[int], target: int) -> str | None:
    """An expression for ``target`` that uses each number once; None where there is none."""
    return _reachable(tuple(sorted(numbers))).get(target)


def targets_of(numbers: Sequence[int], largest: int) -> list[int]:
    """Targets from 1 to ``largest`` that the numbers can make, in order."""
    return sorted(t for t in _reachable(tuple(sorted(numbers))) if 1 <= t <= largest)


@lru_cache(maxsize=512)
def _reachable(numbers: tuple[int, ...]) -> dict[int, str]:
    """An expression for every value that all of ``numbers`` together can make.

    At most 4 numbers: some thousand values.
    """
    if len(numbers) == 1:
        return {numbers[0]: str(numbers[0])}
    made: dict[int, str] = {}
    places = range(len(numbers))
    for size in range(1, len(numbers)):
        for chosen in combinations(places, size):
            left = _reachable(tuple(numbers[i] for i in chosen))
            right = _reachable(tuple(numbers[i] for i in places if i not in chosen))
            for a, first in left.items():
                for b, second in right.items():
                    made.setdefault(a - b, f"( {first} - {second} )")
                    made.setdefault(a + b, f"( {first} + {second} )")
                    made.setdefault(a * b, f"( {first} * {second} )")
    return made


def _tokens(expression: str) -> list[str] | None:
    text = expression.strip()
    if not text or len(text) > MAX_CHARS:
        return None
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[0])
        blank = _BLANK.match(text, match.end())
        at = blank.end() if blank else match.end()
    return tokens


def _evaluated(tokens: Sequence[str]) -> int | None:
    """The value by precedence, left to right; None for what is no expression."""
    values: list[int] = []
    waiting: list[str] = []
    wants_number = True
    for token in tokens:
        is_opening = token.isdigit() or token == "("
        if is_opening != wants_number:
            return None
        if token.isdigit():
            values.append(int(token))
        elif token == "(":
            waiting.append(token)
        elif token == ")":
            while waiting and waiting[-1] != "(":
                _apply(values, waiting.pop())
            if not waiting:
                return None
            waiting.pop()
        else:
            while waiting and _OPERATORS.get(waiting[-1], 0) >= _OPERATORS[token]:
                _apply(values, waiting.pop())
            waiting.append(token)
        wants_number = token in _OPERATORS or token == "("
    if wants_number or "(" in waiting:
        return None
    while waiting:
        _apply(values, waiting.pop())
    return values[0]


def _apply(values: list[int], operator: str) -> None:
    second, first = values.pop(), values.pop()
    values.append({"+": first + second, "-": first - second, "*": first * second}[operator])
