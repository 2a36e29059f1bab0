"""MuSiQue-Ans: questions of two to four hops over twenty paragraphs.

Format: https://github.com/StonyBrookNLP/musique (``musique_ans_v1.0_train.jsonl`` and
``_dev.jsonl``: ``id``, ``question``, ``answer``, ``answer_aliases``, ``answerable`` and
``paragraphs`` with ``title``, ``paragraph_text`` and ``is_supporting``).
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import items, record, text
from troupe_tasks.search.published import SearchRow, merged


def convert(row: Row) -> dict[str, Any]:
    """An answerable question; paragraphs of one title become one page."""
    if row.get("answerable") is False:
        raise RefusedRowError("unanswerable")
    paragraphs = [record(item, "no_paragraph") for item in items(row, "paragraphs")]
    pages = merged([(text(p, "title"), text(p, "paragraph_text")) for p in paragraphs])
    support = [text(p, "title") for p in paragraphs if p.get("is_supporting") is True]
    if not support:
        raise RefusedRowError("no_support")
    aliases = row.get("answer_aliases")
    answers = [text(row, "answer"), *(str(a) for a in aliases or [] if str(a).strip())]
    return {
        "id": f"musique/{text(row, 'id')}",
        "question": text(row, "question"),
        "answers": list(dict.fromkeys(answers)),
        "support": list(dict.fromkeys(support)),
        "paragraphs": pages,
        "kind": text(row, "id").partition("_")[0],
        "source": "musique",
    }


DATASET = Dataset(
    name="musique",
    task="search",
    title="MuSiQue-Ans",
    hub_id="dgslibisey/MuSiQue",
    splits={
        "train": ("musique_ans_v1.0_train.jsonl",),
        "test": ("musique_ans_v1.0_dev.jsonl",),
    },
    schema=SearchRow,
    convert=convert,
    licence="CC BY 4.0",
    citation="Trivedi et al. 2022, MuSiQue: Multihop Questions via Single-hop Question "
    "Composition, arXiv 2108.00573",
    format_source="https://github.com/StonyBrookNLP/musique",
    contamination_fields=("question",),
)
