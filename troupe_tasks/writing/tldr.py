"""TLDR: one agent sums a post up in a line, another in detail (CoMLRL, arXiv 2508.04652)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from troupe_tasks.writing.environment import SPLIT_MARK, WRITER, Genre
from troupe_tasks.writing.family import WritingFamily, terms, usual_workflow
from troupe_tasks.writing.formula import TLDR
from troupe_tasks.writing.gate import TLDR_GATE
from troupe_tasks.writing.posts import POSTS
from troupe_tasks.writing.row import WritingRow

SUMMARIZER, ELABORATOR = "summarizer", "elaborator"

_RULES: Mapping[str, str] = {
    SUMMARIZER: (
        "Summarise the post in one or two short sentences, in your own words. Answer with the "
        "summary only, in at least eight words."
    ),
    ELABORATOR: (
        "Summarise the post in detail, in your own words: two to three times as long as a summary "
        "of one sentence, with more different words, and with connecting words that show how the "
        "points hang together. Answer with the summary only."
    ),
    WRITER: (
        "Write two summaries of the post, in your own words: first a short one of one or two "
        f"sentences, then the line {SPLIT_MARK}, then a detailed one, two to three times as long, "
        "with connecting words. Answer with these only."
    ),
}

GENRE = Genre("tldr", (SUMMARIZER, ELABORATOR), TLDR, TLDR_GATE, _RULES, label="Post")


class Tldr(WritingFamily):
    """A short and a detailed summary of one post, paid as a pair.

    ``writer`` alone writes both and is the single-agent baseline.

    Example: ``Tldr(WritingParams(reward="published")).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "tldr"
    agents: ClassVar[tuple[str, ...]] = (SUMMARIZER, ELABORATOR, WRITER)
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = terms(GENRE)
    genre: ClassVar[Genre] = GENRE
    usual_workflow: ClassVar[Mapping[str, Any]] = usual_workflow(GENRE)

    def built_in(self) -> Sequence[WritingRow]:
        """The posts of this project."""
        return [
            WritingRow(
                id=f"tldr/{number}",
                text=f"{post.title}\n\n{post.text}",
                source="troupe",
                title=post.title,
                pair=(post.short, post.detailed),
            )
            for number, post in enumerate(POSTS)
        ]
