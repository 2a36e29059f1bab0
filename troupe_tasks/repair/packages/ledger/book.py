"""Books: payments in cents in the order they came."""

from .money import text_of


def balance(payments: list[int], opening: int) -> int:
    """What is left of ``opening`` after all payments."""
    total = opening
    for payment in payments:
        total += payment
    return total


def lowest(payments: list[int], opening: int) -> int:
    """The lowest balance on the way, the opening one included."""
    low = total = opening
    for payment in payments:
        total += payment
        if total < low:
            low = total
    return low


def overdrawn(payments: list[int], opening: int, limit: int) -> int:
    """How many balances after a payment are below minus ``limit``, which is taken as positive."""
    count, total = 0, opening
    for payment in payments:
        total += payment
        if total < -abs(limit):
            count += 1
    return count


def statement(payments: list[int], opening: int) -> list[str]:
    """The balance after each payment, as texts; a star marks a balance below zero."""
    lines: list[str] = []
    total = opening
    for payment in payments:
        total += payment
        mark = "*" if total < 0 else ""
        lines.append(text_of(total) + mark)
    return lines


def largest_fall(payments: list[int]) -> int:
    """The largest sum of payments below zero that follow each other, as a positive number."""
    worst = run = 0
    for payment in payments:
        run = run - payment if payment < 0 else 0
        worst = max(worst, run)
    return worst
