"""A problem before it is built: what a person writes, from which tests and wrong programs follow.

Owns the value type only. The reference is a program like any other: it runs in a sandbox.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from textwrap import dedent
from typing import Any, Literal

from troupe_tasks.code.problem import Checker

Input = str | tuple[Any, ...]
"""Standard input, or the arguments of a call."""
Draw = Callable[[Random], Input]


_TOKENS, _EXACT = Checker(), Checker(kind="exact")


@dataclass(frozen=True, slots=True)
class Draft:
    """``shown`` are the inputs of the public tests, ``edges`` inputs that hidden tests begin with,
    ``draw`` makes further ones from a seeded generator."""

    name: str
    kind: Literal["stdin", "call"]
    statement: str
    reference: str
    shown: Sequence[Input]
    draw: Draw
    edges: Sequence[Input] = ()
    entry_point: str = ""
    checker: Checker = _TOKENS
    difficulty: str = "easy"
    wrong: Sequence[str] = ()
    """Programs with a mistake that people make; the built problem has changed references too."""


def program(
    name: str,
    statement: str,
    reference: str,
    *,
    shown: Sequence[str],
    draw: Callable[[Random], str],
    edges: Sequence[str] = (),
    checker: Checker = _TOKENS,
    difficulty: str = "easy",
    wrong: Sequence[str] = (),
) -> Draft:
    """A problem on standard input and output."""
    return Draft(
        name,
        "stdin",
        _text(statement),
        _text(reference) + "\n",
        shown,
        draw,
        edges,
        checker=checker,
        difficulty=difficulty,
        wrong=[_text(source) + "\n" for source in wrong],
    )


def function(
    name: str,
    statement: str,
    reference: str,
    *,
    shown: Sequence[tuple[Any, ...]],
    draw: Callable[[Random], tuple[Any, ...]],
    edges: Sequence[tuple[Any, ...]] = (),
    checker: Checker = _EXACT,
    difficulty: str = "easy",
    wrong: Sequence[str] = (),
) -> Draft:
    """A problem that asks for a function, which has the problem's name."""
    return Draft(
        name,
        "call",
        _text(statement),
        _text(reference) + "\n",
        shown,
        draw,
        edges,
        entry_point=name,
        checker=checker,
        difficulty=difficulty,
        wrong=[_text(source) + "\n" for source in wrong],
    )


def numbers(rng: Random, count: int, low: int, high: int) -> list[int]:
    """``count`` whole numbers from ``low`` to ``high``."""
    return [rng.randint(low, high) for _ in range(count)]


def line(*values: object) -> str:
    """Values on one line."""
    return " ".join(str(value) for value in values) + "\n"


def counted(values: Sequence[object]) -> str:
    """How many values, then the values on the next line."""
    return line(len(values)) + line(*values)


def letters(rng: Random, low: int, high: int, alphabet: str = "abc") -> str:
    """A word of ``low`` to ``high`` letters."""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def _text(text: str) -> str:
    return dedent(text).strip()
