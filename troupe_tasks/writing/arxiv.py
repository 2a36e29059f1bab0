"""arXiv expansion: an abstract grows into an introduction by two (CoMLRL, arXiv 2508.04652)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from troupe_tasks.writing.abstracts import ABSTRACTS
from troupe_tasks.writing.environment import SPLIT_MARK, WRITER, Genre
from troupe_tasks.writing.family import WritingFamily, terms, usual_workflow
from troupe_tasks.writing.formula import ARXIV
from troupe_tasks.writing.gate import ARXIV_GATE
from troupe_tasks.writing.row import WritingRow

BACKGROUND, METHOD = "background", "method"

_LENGTH = "between 128 and 256 words"
_RULES: Mapping[str, str] = {
    BACKGROUND: (
        "Two writers turn an abstract into an introduction. Write the first paragraph: the "
        f"background and why the question matters, in plain words, {_LENGTH}. Answer with the "
        "paragraph only."
    ),
    METHOD: (
        "Two writers turn an abstract into an introduction. Write the second paragraph: what is "
        f"done, what follows from it and for whom, {_LENGTH}, somewhat longer than a first "
        "paragraph on the background, in the same style. Answer with the paragraph only."
    ),
    WRITER: (
        "Turn the abstract into an introduction of two paragraphs, each "
        f"{_LENGTH}: first the background and why the question matters, then the line "
        f"{SPLIT_MARK}, then, somewhat longer, what is done and what follows. Answer with these "
        "only."
    ),
}

GENRE = Genre("arxiv_expansion", (BACKGROUND, METHOD), ARXIV, ARXIV_GATE, _RULES, label="Abstract")


class ArxivExpansion(WritingFamily):
    """Two paragraphs of an introduction to one abstract, paid as a pair.

    ``writer`` alone writes both and is the single-agent baseline.

    Example: ``ArxivExpansion(WritingParams()).taskset().task("test", 0)``.
    """

    name: ClassVar[str] = "arxiv_expansion"
    agents: ClassVar[tuple[str, ...]] = (BACKGROUND, METHOD, WRITER)
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = terms(GENRE)
    genre: ClassVar[Genre] = GENRE
    usual_workflow: ClassVar[Mapping[str, Any]] = usual_workflow(GENRE)

    def built_in(self) -> Sequence[WritingRow]:
        """The abstracts of this project."""
        return [
            WritingRow(
                id=f"arxiv_expansion/{number}",
                text=f"{abstract.title}\n\n{abstract.text}",
                source="troupe",
                title=abstract.title,
                pair=(abstract.background(), abstract.method_part()),
            )
            for number, abstract in enumerate(ABSTRACTS)
        ]
