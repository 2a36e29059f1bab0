"""Compares two results: rows counted, columns in order, names ignored, floats to nine digits."""

from collections.abc import Iterable, Sequence

from troupe_tasks.sql.guard import Cell
from troupe_tasks.sql.tokens import tokens

SIGNIFICANT = 9


def is_equal(
    gold: Sequence[Sequence[Cell]], rows: Sequence[Sequence[Cell]], *, is_ordered: bool
) -> bool:
    """Whether ``rows`` are the rows of ``gold``, as a bag, or in order."""
    if len(gold) != len(rows):
        return False
    wanted, got = _keys(gold), _keys(rows)
    return wanted == got if is_ordered else sorted(wanted) == sorted(got)


def is_ordered(sql: str) -> bool:
    """Whether the outermost query has ORDER BY.

    Example: ``is_ordered("SELECT a FROM (SELECT a FROM t ORDER BY a)")`` is False.
    """
    depth = 0
    for kind, text in tokens(sql):
        if kind == "sign":
            depth += (text == "(") - (text == ")")
        elif kind == "word" and depth == 0 and text.lower() == "order":
            return True
    return False


def _keys(rows: Iterable[Sequence[Cell]]) -> list[tuple[str, ...]]:
    return [tuple(_key(cell) for cell in row) for row in rows]


def _key(cell: Cell) -> str:
    if isinstance(cell, float):
        if cell.is_integer() and abs(cell) < 2**53:
            return f"n{int(cell)}"
        return f"n{cell:.{SIGNIFICANT}g}"
    if isinstance(cell, int):
        return f"n{cell}"
    return f"{type(cell).__name__}{cell!r}"
