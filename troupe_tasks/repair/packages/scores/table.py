"""Tables: points by name."""

from .points import total


def ranked(table: dict[str, int]) -> list[str]:
    """Names by points, most first; equals in the order of the alphabet."""
    return sorted(table, key=lambda name: (-table[name], name))


def rank(table: dict[str, int], name: str) -> int:
    """The rank from 1 on; equals share one. Who is not in the table has rank 0."""
    if name not in table:
        return 0
    return 1 + sum(1 for points in table.values() if points > table[name])


def winners(table: dict[str, int]) -> list[str]:
    """All who have the most points, in the order of the alphabet."""
    best = max(table.values(), default=0)
    return sorted(name for name in table if table[name] == best)


def beats(first: list[int], second: list[int], drop: int) -> bool:
    """Whether the first player's total is above the second's, worst rounds dropped."""
    return total(first, drop) > total(second, drop)
