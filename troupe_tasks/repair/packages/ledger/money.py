"""Amounts in cents."""


def to_cents(whole: int, part: int) -> int:
    """Cents of ``whole`` units and ``part`` cents; a negative whole makes all of it negative."""
    size = abs(whole) * 100 + abs(part) % 100
    return -size if whole < 0 else size


def text_of(cents: int) -> str:
    """An amount such as ``-3.05``."""
    sign = "-" if cents < 0 else ""
    whole, part = divmod(abs(cents), 100)
    return f"{sign}{whole}.{part:02d}"


def shared(cents: int, people: int) -> list[int]:
    """Equal shares of ``cents``; the first ones get a cent more. Nobody: no share."""
    if people <= 0:
        return []
    share, rest = divmod(cents, people)
    return [share + 1 if number < rest else share for number in range(people)]
