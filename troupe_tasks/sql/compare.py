"""Compares two results: rows counted, columns in order, names ignored, floats to nine digits."""

from collections.abc import Collection, Iterable, Sequence

from troupe_tasks.sql.guard import Cell
from troupe_tasks.sql.tokens import tokens

SIGNIFICANT = 9


def is_equal(
    gold: Sequence[Sequence[Cell]], rows: Sequence[Sequence[Cell]], *, is_ordered: bool
) -> bool:
    """Whether ``rows`` are the rows of ``gold``, as a bag, or in order."""
    if len(gold) != len(rows):
        return False
    # Ints are exact but in a column with a float, whose last digits depend on the order of rows.
    floats = {
        at for row in (*gold, *rows) for at, cell in enumerate(row) if isinstance(cell, float)
    }
    wanted, got = _keys(gold, floats), _keys(rows, floats)
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


def _keys(rows: Iterable[Sequence[Cell]], floats: Collection[int]) -> list[tuple[str, ...]]:
    return [tuple(_key(cell, at in floats) for at, cell in enumerate(row)) for row in rows]


def _key(cell: Cell, is_rounded: bool) -> str:
    if isinstance(cell, int | float):
        return f"n{cell + 0.0:.{SIGNIFICANT}g}" if is_rounded else f"n{cell}"
    return f"{type(cell).__name__}{cell!r}"
