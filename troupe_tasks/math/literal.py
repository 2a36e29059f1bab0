r"""Numbers as they are written in answers, compared exactly.

Most answers are numbers, so most verdicts need no computer algebra. A literal is a number that
is written down, never one that is still to be worked out: ``17 \cdot 23`` is none.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from troupe_tasks.math.units import without_unit

NUM_ROUNDED_DECIMALS = 6
"""A decimal with at least so many places may stand for a number that it rounds."""

_TOLERANCE = Fraction(1, 10**6)
_SMALLEST_ROUNDED = Fraction(1, 1000)

_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\})\d{3})+|\d{1,120})"
_DECIMAL = re.compile(rf"([+-]?)({_DIGITS})?(?:\.(\d{{1,60}}))?(?:[eE]([+-]?\d{{1,2}}))?")
_FRACTION = re.compile(
    r"([+-]?)(?:\\[dt]?frac(?:\{([+-]?\d{1,120})\}\{(\d{1,120})\}|(\d)(\d))|(\d{1,120})/(\d{1,120}))"
)
_NOISE = re.compile(
    r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\[,!;:]|\\ |\\quad|\\displaystyle|\$|\\\$|~|\s"
)
_MIXED = re.compile(
    rf"([+-]?{_DIGITS})(?:\\[dt]?frac(?:\{{(\d{{1,120}})\}}\{{(\d{{1,120}})\}}|(\d)(\d))"
    r"|#(\d{1,120})/(\d{1,120}))"
)
"""A whole number and a fraction right behind it; ``#`` is the space of ``3 1/2``."""
_SPACE = re.compile(r"(?<=\d)(?:\s|~|\\[,;:! ])+(?=(?!\d{3}\s*/)\d+\s*/)")
"""The space of ``3 1/2``; not that of ``10 000/3``, which has three digits behind it."""
_SIGN = re.compile(r"(?<=[\d}%])(?:\^\{?\\circ\}?|\\?%)$")


@dataclass(frozen=True, slots=True)
class Literal:
    """A written number. ``num_decimals`` counts places after the point; ``is_percent`` marks %.

    ``is_reduced`` is False for a fraction such as ``6/8``.
    """

    value: Fraction
    num_decimals: int
    is_fraction: bool
    is_reduced: bool
    is_percent: bool


def read_literal(text: str) -> Literal | None:
    r"""The number that ``text`` writes down, or None when it is anything else.

    Units, degree and currency signs are passed over: ``\$1{,}250.50``, ``40^\circ``, ``3 cm``.
    A mixed number is one, ``3\frac{1}{2}``; the product ``3 \cdot \frac{1}{2}`` is none.
    """
    spaced = _SPACE.sub("#", without_unit(text))
    plain = _NOISE.sub("", spaced).rstrip(".").replace("\N{MINUS SIGN}", "-")
    is_percent = plain.endswith("%")
    while sign := _SIGN.search(plain):
        plain = plain[: sign.start()].rstrip("\\")
    if fraction := _FRACTION.fullmatch(plain):
        return _fraction(fraction, is_percent)
    if mixed := _MIXED.fullmatch(plain):
        return _mixed(mixed, is_percent)
    decimal = _DECIMAL.fullmatch(plain)
    if decimal is None or not (decimal.group(2) or decimal.group(3)):
        return None
    return _decimal(decimal, is_percent)


def is_same_number(gold: Literal, candidate: Literal) -> bool:
    """Whether ``candidate`` says the number ``gold``.

    A decimal of at least six places may be rounded. A fraction must be reduced, or a problem that
    asks to reduce one would be answered by repeating it; ``50%`` says 50 and 1/2.
    """
    if candidate.is_fraction and not candidate.is_reduced and gold.is_reduced:
        return False
    if candidate.is_fraction and gold.value.denominator == 1 and not gold.is_fraction:
        return False
    values = {candidate.value}
    if candidate.is_percent != gold.is_percent:
        values.add(candidate.value / 100 if candidate.is_percent else candidate.value * 100)
    return any(_is_close(gold.value, value, candidate.num_decimals) for value in values)


def _is_close(gold: Fraction, value: Fraction, num_decimals: int) -> bool:
    if gold == value:
        return True
    may_be_rounded = num_decimals >= NUM_ROUNDED_DECIMALS and abs(gold) >= _SMALLEST_ROUNDED
    return may_be_rounded and abs(gold - value) < _TOLERANCE


def _fraction(match: re.Match[str], is_percent: bool) -> Literal | None:
    sign, *pairs = match.groups()
    numerator, denominator = (int(part) for part in pairs if part is not None)
    if denominator == 0:
        return None
    value = Fraction(numerator, denominator)
    is_reduced = value.denominator == denominator
    return Literal(-value if sign == "-" else value, 0, True, is_reduced, is_percent)


def _mixed(match: re.Match[str], is_percent: bool) -> Literal | None:
    """``3\\frac{1}{2}`` as 7/2; None for ``3\\frac{5}{2}``, which may be a product."""
    whole, *parts = match.groups()
    numerator, denominator = (int(part) for part in parts if part is not None)
    units = int(re.sub(r"\D", "", whole))
    if not units or not 0 < numerator < denominator:
        return None
    value = units + Fraction(numerator, denominator)
    is_reduced = value.denominator == denominator
    return Literal(-value if whole[0] == "-" else value, 0, True, is_reduced, is_percent)


def _decimal(match: re.Match[str], is_percent: bool) -> Literal:
    sign, whole, places, exponent = match.groups()
    digits = re.sub(r"\D", "", whole or "0")
    value = Fraction(int(digits + (places or "")), 10 ** len(places or ""))
    value *= Fraction(10) ** int(exponent or 0)
    num_decimals = len(places or "")
    return Literal(-value if sign == "-" else value, num_decimals, False, True, is_percent)
