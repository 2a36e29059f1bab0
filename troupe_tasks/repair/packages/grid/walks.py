"""Walks: a start and a text of moves."""

from .points import distance, is_inside, moved


def end(start: tuple[int, int], moves: str) -> tuple[int, int]:
    """Where the walk ends."""
    point = start
    for move in moves:
        point = moved(point, move)
    return point


def farthest(start: tuple[int, int], moves: str) -> int:
    """The largest distance from the start on the way."""
    point, best = start, 0
    for move in moves:
        point = moved(point, move)
        best = max(best, distance(start, point))
    return best


def stays(start: tuple[int, int], moves: str, size: int) -> int:
    """How many moves are made before the walk leaves a square board; all when it never does."""
    point = start
    for count, move in enumerate(moves):
        point = moved(point, move)
        if not is_inside(point, size, size):
            return count
    return len(moves)


def visits(start: tuple[int, int], moves: str) -> int:
    """How many different points the walk touches, the start included."""
    point = start
    seen = {start}
    for move in moves:
        point = moved(point, move)
        seen.add(point)
    return len(seen)


def turns(moves: str) -> int:
    """How often a move differs from the one before."""
    count = 0
    for number in range(1, len(moves)):
        if moves[number] != moves[number - 1]:
            count += 1
    return count
