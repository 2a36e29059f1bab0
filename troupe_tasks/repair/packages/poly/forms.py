"""Shapes of polynomials."""


def trimmed(terms: list[int]) -> list[int]:
    """Without zeros at the end."""
    last = 0
    for number, term in enumerate(terms, start=1):
        if term != 0:
            last = number
    return terms[:last]


def degree(terms: list[int]) -> int:
    """The highest power with a coefficient that is not zero; -1 for the zero polynomial."""
    return len(trimmed(terms)) - 1


def value(terms: list[int], x: int) -> int:
    """The value at ``x``."""
    total = 0
    for term in reversed(terms):
        total = total * x + term
    return total
