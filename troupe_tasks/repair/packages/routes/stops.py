"""Stops: minutes from the start of the line."""


def ride(stops: list[int], start: int, goal: int) -> int:
    """Minutes between the stops with these numbers; -1 when one is not there."""
    if not (0 <= start < len(stops) and 0 <= goal < len(stops)):
        return -1
    return abs(stops[goal] - stops[start])


def longest_leg(stops: list[int]) -> int:
    """The most minutes between a stop and the next; 0 with fewer than two stops."""
    best = 0
    for number in range(1, len(stops)):
        best = max(best, abs(stops[number] - stops[number - 1]))
    return best


def reached(stops: list[int], minutes: int) -> int:
    """How many stops are at most ``minutes`` from the start of the line."""
    return sum(1 for stop in stops if stop <= minutes)
