"""Published questions with their paragraphs (HotpotQA, 2WikiMultihopQA, MuSiQue)."""

import hashlib

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.prepared import SplitRows
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task

MAX_PARAGRAPHS = 200
MAX_TITLE_CHARS = 200


class SearchRow(BaseModel):
    """One question; ``paragraphs`` are (title, text), and each title occurs once.

    Example: ``SearchRow(id="hotpotqa/1", question="...", answers=["Oslo"], support=["A", "B"],
    ...)``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    answers: tuple[str, ...] = Field(min_length=1)
    support: tuple[str, ...] = Field(min_length=1)
    paragraphs: tuple[tuple[str, str], ...] = ()
    kind: str = ""
    source: str = ""


def merged(paragraphs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Paragraphs of one title as one page, in order."""
    pages: dict[str, list[str]] = {}
    for title, text in paragraphs[:MAX_PARAGRAPHS]:
        pages.setdefault(title[:MAX_TITLE_CHARS], []).append(text.strip())
    return [(title, " ".join(texts)) for title, texts in pages.items()]


class PreparedSearch:
    """Finite splits: questions of files that ``troupe data prepare`` wrote."""

    def __init__(self, rows: SplitRows[SearchRow]) -> None:
        self._rows = rows

    def size(self, split: Split) -> int | None:
        """Number of questions."""
        return self._rows.size(split)

    def task(self, split: Split, index: int) -> Task:
        """Row ``index`` of the split's file; the payload names it and its digest."""
        row = self._rows.row(split, index)
        return Task(row.id, split, index, f"{split}:{index}:{_digest(row)}".encode())


def row_named(rows: SplitRows[SearchRow], key: str) -> SearchRow:
    """The row that a state names; raises InvalidArgumentError when it is another one."""
    split, _, rest = key.partition(":")
    index, _, digest = rest.partition(":")
    known: dict[str, Split] = {"train": "train", "validation": "validation", "test": "test"}
    if split not in known or not index.isdigit():
        raise InvalidArgumentError(f"{key[:80]!r} names no prepared question")
    row = rows.row(known[split], int(index))
    if _digest(row) != digest:
        raise InvalidArgumentError(
            f"{split} question {index} ({row.id!r}) differs between this process and the one that "
            "began the episode; give both the same files"
        )
    return row


def _digest(row: SearchRow) -> str:
    return hashlib.sha256(row.model_dump_json().encode()).hexdigest()[:16]
