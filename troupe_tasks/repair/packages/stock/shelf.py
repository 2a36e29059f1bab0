"""Shelves: numbers of articles by name."""


def received(shelf: dict[str, int], names: list[str]) -> dict[str, int]:
    """The shelf with one more of each name."""
    after = dict(shelf)
    for name in names:
        after[name] = after.get(name, 0) + 1
    return after


def taken(shelf: dict[str, int], name: str, count: int) -> dict[str, int]:
    """The shelf with ``count`` fewer of ``name``, unchanged when it has too few."""
    after = dict(shelf)
    if count > 0 and after.get(name, 0) >= count:
        after[name] = after[name] - count
    return after


def scarce(shelf: dict[str, int], least: int) -> list[str]:
    """Names of which there are fewer than ``least``, in the order of the alphabet."""
    return sorted(name for name, count in shelf.items() if count < least)


def joined(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Both shelves together."""
    after = dict(first)
    for name, count in second.items():
        after[name] = after.get(name, 0) + count
    return after
