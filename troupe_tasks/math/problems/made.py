"""What a template makes: one problem, its exact answer, and a program that finds it by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

LEVELS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Made:
    """A problem in LaTeX, its answer in lowest terms, and Python that prints that answer.

    The program works the answer out another way than the template did, mostly by counting, so
    that each checks the other.

    Example: ``Made("Compute $3 + 4$.", "7", "print(3 + 4)")``.
    """

    problem: str
    answer: str
    program: str


Template = Callable[[Random, int], Made]
"""Draws one problem of a level from 1 (easy) to 3 (hard)."""


def shown(value: Fraction) -> str:
    r"""A fraction as an answer: ``7``, or ``\frac{3}{4}``."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def polynomial(coefficients: list[int]) -> str:
    """A polynomial in x, highest power first: ``3x^{2} - x + 4``."""
    degree = len(coefficients) - 1
    text = ""
    for power, c in zip(range(degree, -1, -1), coefficients, strict=True):
        if c == 0:
            continue
        size = "" if abs(c) == 1 and power else str(abs(c))
        variable = "" if power == 0 else "x" if power == 1 else f"x^{{{power}}}"
        sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
        text += f"{sign}{size}{variable}"
    return text or "0"
