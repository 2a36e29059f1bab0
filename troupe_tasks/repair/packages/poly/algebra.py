"""Sums, products and slopes."""

from .forms import trimmed, value


def added(first: list[int], second: list[int]) -> list[int]:
    """The sum, without zeros at the end."""
    size = max(len(first), len(second))
    total = [0] * size
    for number, term in enumerate(first):
        total[number] += term
    for number, term in enumerate(second):
        total[number] += term
    return trimmed(total)


def times(first: list[int], second: list[int]) -> list[int]:
    """The product, without zeros at the end."""
    product = [0] * (len(first) + len(second))
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            product[i + j] += one * other
    return trimmed(product)


def slope(terms: list[int]) -> list[int]:
    """The derivative."""
    return trimmed([power * term for power, term in enumerate(terms)][1:])


def between(terms: list[int], low: int, high: int) -> int:
    """How much the value grows from ``low`` to ``high``."""
    return value(terms, high) - value(terms, low)


def roots(terms: list[int], limit: int) -> list[int]:
    """Whole numbers from minus ``limit`` to ``limit`` where the value is zero."""
    size = abs(limit)
    return [x for x in range(-size, size + 1) if value(terms, x) == 0]
