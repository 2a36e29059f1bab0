"""arXiv abstracts of 100 to 300 tokens, to be expanded into introductions.

Format: data/README.md of https://github.com/OpenMLRL/LLM_Collab_Writing (fields article_id,
abstract_text as a list of sentences, token_count), published as
https://huggingface.co/datasets/OpenMLRL/arXiv_abstract with splits train, val and test. The
sentences carry ``<S>`` marks in the set that it was made from (Cohan et al. 2018).
"""

from typing import Any, cast

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import text
from troupe_tasks.writing.row import WritingRow

MIN_WORDS = 40


def convert(row: Row) -> dict[str, Any]:
    """A writing row: the sentences joined, without their marks."""
    published = row.get("abstract_text")
    if isinstance(published, list):
        sentences = [s for s in cast("list[Any]", published) if isinstance(s, str)]
    else:
        sentences = [text(row, "abstract_text")]
    marked = " ".join(sentences).replace("<S>", " ").replace("</S>", " ")
    abstract = " ".join(marked.split())
    if len(abstract.split()) < MIN_WORDS:
        raise RefusedRowError("abstract_too_short")
    return {
        "id": f"arxiv_abstract/{text(row, 'article_id')}",
        "text": abstract,
        "source": "arxiv_abstract",
    }


DATASET = Dataset(
    name="arxiv_abstract",
    task="arxiv_expansion",
    title="arXiv abstracts (CoMLRL)",
    hub_id="OpenMLRL/arXiv_abstract",
    splits={
        "train": ("data/train-*.parquet", "train*.jsonl"),
        "validation": ("data/val*.parquet", "val*.jsonl"),
        "test": ("data/test-*.parquet", "test*.jsonl"),
    },
    schema=WritingRow,
    convert=convert,
    licence="see the publisher: abstracts are their authors'",
    citation=(
        "Cohan et al. 2018, A Discourse-Aware Attention Model for Abstractive Summarization of "
        "Long Documents, arXiv 1804.05685; Liu et al. 2025, arXiv 2508.04652"
    ),
    format_source="https://github.com/OpenMLRL/LLM_Collab_Writing/blob/main/data/README.md",
    contamination_fields=("text",),
)
