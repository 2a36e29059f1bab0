"""Search/replace blocks: how the fixer edits, and why an edit is refused.

ledger/book.py
<<<<<<< SEARCH
    if total <= low:
=======
    if total < low:
>>>>>>> REPLACE
"""

from dataclasses import dataclass

from troupe_tasks.repair.repository import Files

SEARCH, MIDDLE, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
MAX_BLOCKS = 4
MAX_TEXT_CHARS = 20_000
MAX_FILE_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Edit:
    """One block."""

    path: str
    search: str
    replace: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The files that an answer changed, and a few words on each block that was refused."""

    changed: dict[str, str]
    refusals: tuple[str, ...]


def read_edits(text: str) -> tuple[tuple[Edit, ...], bool]:
    """The first blocks of ``text``, and whether every block is whole and none is too many."""
    edits: list[Edit] = []
    is_whole = len(text) <= MAX_TEXT_CHARS
    lines = text[:MAX_TEXT_CHARS].replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        if lines[at].rstrip() != SEARCH:
            at += 1
            continue
        middle = _next(lines, MIDDLE, at + 1)
        end = _next(lines, REPLACE, middle + 1)
        path = _path(lines, at)
        if not (at < middle < end) or not path or len(edits) == MAX_BLOCKS:
            return tuple(edits), False
        edits.append(
            Edit(path, "\n".join(lines[at + 1 : middle]), "\n".join(lines[middle + 1 : end]))
        )
        at = end + 1
    return tuple(edits), is_whole and bool(edits)


def edit_text(edit: Edit) -> str:
    """The block that ``read_edits`` reads as ``edit``."""
    return "\n".join((edit.path, SEARCH, edit.search, MIDDLE, edit.replace, REPLACE))


def applied(files: Files, edits: tuple[Edit, ...]) -> Edited:
    """The edits one after the other. Tests and new files cannot be edited."""
    changed: dict[str, str] = {}
    refusals: list[str] = []
    for number, edit in enumerate(edits, start=1):
        text = changed.get(edit.path, files.get(edit.path))
        if text is None:
            refusals.append(f"block {number}: there is no such file")
        elif edit.path.startswith("tests/"):
            refusals.append(f"block {number}: tests cannot be edited")
        elif not edit.search.strip() or len(places := _places(text, edit.search)) != 1:
            refusals.append(f"block {number}: its lines must stand in the file exactly once")
        else:
            lines, [place] = text.split("\n"), places
            lines[place] = edit.replace.split("\n")
            after = "\n".join(lines)
            if len(after) > MAX_FILE_CHARS:
                refusals.append(f"block {number}: the file becomes too long")
            else:
                changed[edit.path] = after
    return Edited(changed, tuple(refusals))


def _places(text: str, search: str) -> list[slice]:
    """Where whole lines of ``text`` are ``search``."""
    lines, wanted = text.split("\n"), search.split("\n")
    places = [slice(at, at + len(wanted)) for at in range(len(lines) - len(wanted) + 1)]
    return [place for place in places if lines[place] == wanted]


def _next(lines: list[str], mark: str, start: int) -> int:
    if start <= 0:
        return -1
    return next((n for n in range(start, len(lines)) if lines[n].rstrip() == mark), -1)


def _path(lines: list[str], at: int) -> str:
    before = [line.strip(" \t`") for line in lines[max(0, at - 2) : at]]
    named = [line for line in before if line and not line.startswith("python")]
    return named[-1] if named and len(named[-1]) <= 80 else ""
