"""Points: x to the right, y upwards."""


def moved(point: tuple[int, int], move: str) -> tuple[int, int]:
    """The point after one of the moves u, d, l and r; other letters move nothing."""
    x, y = point
    if move == "u":
        return x, y + 1
    if move == "d":
        return x, y - 1
    if move == "l":
        return x - 1, y
    if move == "r":
        return x + 1, y
    return x, y


def distance(first: tuple[int, int], second: tuple[int, int]) -> int:
    """Steps between two points when no step is slanted."""
    return abs(first[0] - second[0]) + abs(first[1] - second[1])


def is_inside(point: tuple[int, int], width: int, height: int) -> bool:
    """Whether the point lies on a board that begins at (0, 0)."""
    return 0 <= point[0] < width and 0 <= point[1] < height


def mirrored(point: tuple[int, int], width: int) -> tuple[int, int]:
    """The point on the other side of a board of this width, in the same row."""
    return width - 1 - point[0], point[1]
