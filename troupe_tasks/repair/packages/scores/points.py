"""Points of one player."""


def total(points: list[int], drop: int) -> int:
    """The sum without the ``drop`` worst rounds; fewer than none drops none."""
    kept = sorted(points)[max(0, drop) :]
    return sum(kept)


def streak(points: list[int]) -> int:
    """The longest run of rounds with more than zero points."""
    best = run = 0
    for point in points:
        run = run + 1 if point > 0 else 0
        best = max(best, run)
    return best


def capped(points: list[int], most: int) -> list[int]:
    """Each round at most ``most`` and at least zero."""
    return [max(0, min(point, most)) for point in points]
