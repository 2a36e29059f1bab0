"""One or two intervals."""


def ordered(span: tuple[int, int]) -> tuple[int, int]:
    """The interval with the lower end first."""
    first, last = span
    return (first, last) if first <= last else (last, first)


def size(span: tuple[int, int]) -> int:
    """How many numbers it holds."""
    first, last = ordered(span)
    return last - first


def holds(span: tuple[int, int], number: int) -> bool:
    """Whether it holds ``number``."""
    first, last = ordered(span)
    return first <= number < last


def shared(one: tuple[int, int], other: tuple[int, int]) -> int:
    """How many numbers both hold."""
    first, last = ordered(one)
    start, stop = ordered(other)
    return max(0, min(last, stop) - max(first, start))
