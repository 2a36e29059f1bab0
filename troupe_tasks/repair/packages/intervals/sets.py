"""Lists of intervals."""

from .spans import holds, ordered, size


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers as few intervals that do not touch, empty ones left out."""
    done: list[tuple[int, int]] = []
    for first, last in sorted(ordered(span) for span in spans):
        if first == last:
            continue
        if done and first <= done[-1][1]:
            done[-1] = (done[-1][0], max(done[-1][1], last))
        else:
            done.append((first, last))
    return done


def covered(spans: list[tuple[int, int]]) -> int:
    """How many numbers at least one interval holds."""
    return sum(size(span) for span in merged(spans))


def depth(spans: list[tuple[int, int]], number: int) -> int:
    """How many intervals hold ``number``."""
    return sum(1 for span in spans if holds(span, number))


def gaps(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The holes between the merged intervals."""
    parts = merged(spans)
    starts = [part[0] for part in parts[1:]]
    return [(part[1], start) for part, start in zip(parts[:-1], starts, strict=True)]
