"""Days."""

from .months import is_leap, length


def day_of_year(year: int, month: int, day: int) -> int:
    """The number of a day in its year, from 1."""
    total = day
    for earlier in range(1, month):
        total += length(year, earlier)
    return total


def days_left(year: int, month: int, day: int) -> int:
    """Days of the year that come after a day."""
    whole = 366 if is_leap(year) else 365
    return whole - day_of_year(year, month, day)


def leap_years(first: int, last: int) -> int:
    """How many years from ``first`` to ``last``, both included, have 366 days."""
    return sum(1 for year in range(first, last + 1) if is_leap(year))


def is_valid(year: int, month: int, day: int) -> bool:
    """Whether there is such a day."""
    return 1 <= month <= 12 and 1 <= day <= length(year, month)


def next_day(year: int, month: int, day: int) -> tuple[int, int, int]:
    """The day after, as year, month and day."""
    if day < length(year, month):
        return year, month, day + 1
    if month < 12:
        return year, month + 1, 1
    return year + 1, 1, 1
