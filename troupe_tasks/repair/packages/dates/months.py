"""Months and leap years."""

LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Whether a year has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def length(year: int, month: int) -> int:
    """Days of a month from 1 to 12; months beyond count on from January again."""
    number = (month - 1) % 12
    if number == 1 and is_leap(year):
        return 29
    return LENGTHS[number]


def quarter(month: int) -> int:
    """The quarter, 1 to 4, of a month; months beyond count on from January again."""
    return (month - 1) % 12 // 3 + 1
