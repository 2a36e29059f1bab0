"""Published questions with their paragraphs (HotpotQA, 2WikiMultihopQA, MuSiQue)."""

from pydantic import ConfigDict, Field

from troupe.data.overlap import near_verbatim
from troupe.data.taskset import PreparedRow

MAX_PARAGRAPHS = 200
MAX_TITLE_CHARS = 200


class SearchRow(PreparedRow):
    """One question; ``paragraphs`` are (title, text), and each title occurs once.

    Example: ``SearchRow(id="hotpotqa/1", question="...", answers=["Oslo"], support=["A", "B"],
    ...)``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    answers: tuple[str, ...] = Field(min_length=1)
    support: tuple[str, ...] = Field(min_length=1)
    paragraphs: tuple[tuple[str, str], ...] = ()
    kind: str = ""
    source: str = ""

    @property
    def compared(self) -> str:
        """The question."""
        return near_verbatim(self.question)


def merged(paragraphs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Paragraphs of one title as one page, in order."""
    pages: dict[str, list[str]] = {}
    for title, text in paragraphs[:MAX_PARAGRAPHS]:
        pages.setdefault(title[:MAX_TITLE_CHARS], []).append(text.strip())
    return [(title, " ".join(texts)) for title, texts in pages.items()]
