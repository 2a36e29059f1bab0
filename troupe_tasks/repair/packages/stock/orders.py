"""Orders: names of articles, one for each piece."""

from .shelf import received


def needed(names: list[str]) -> dict[str, int]:
    """How many of each name an order needs."""
    return received({}, names)


def missing(shelf: dict[str, int], names: list[str]) -> dict[str, int]:
    """What an order needs beyond what the shelf has."""
    gaps: dict[str, int] = {}
    for name, count in needed(names).items():
        gap = count - max(0, shelf.get(name, 0))
        if gap > 0:
            gaps[name] = gap
    return gaps


def can_send(shelf: dict[str, int], names: list[str]) -> bool:
    """Whether the shelf has all of an order."""
    return not missing(shelf, names)


def cost(prices: dict[str, int], names: list[str], free_from: int) -> int:
    """The prices of an order; from ``free_from`` pieces on the cheapest one is free."""
    found = [prices.get(name, 0) for name in names]
    total = sum(found)
    if found and len(found) >= free_from:
        total -= min(found)
    return total


def parcels(names: list[str], most: int) -> int:
    """How many parcels of at most ``most`` pieces an order fills; less than one counts as one."""
    room = max(1, most)
    return (len(names) + room - 1) // room
