"""Converts rows of HotpotQA's form, which 2WikiMultihopQA shares, in both published encodings."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, cast

from troupe.data.dataset import RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.search.published import merged


def converter(name: str) -> Callable[[Row], dict[str, Any]]:
    """The converter of the data set ``name``."""

    def convert(row: Row) -> dict[str, Any]:
        """A question with its paragraphs and the titles that it rests on."""
        question = text(row, "question")
        pages = merged(
            [(str(t), " ".join(map(str, s))) for t, s in _pairs(row, "context", "sentences")]
        )
        facts = _pairs(row, "supporting_facts", "sent_id")
        support = list(dict.fromkeys(str(title) for title, _ in facts))
        if not support or not {*support} <= {title for title, _ in pages}:
            raise RefusedRowError("support_not_in_context")
        return {
            "id": f"{name}/{optional_text(row, '_id', 'id') or _digest(question)}",
            "question": question,
            "answers": [text(row, "answer")],
            "support": support,
            "paragraphs": pages,
            "kind": optional_text(row, "type"),
            "source": name,
        }

    return convert


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:12]


def _pairs(row: Row, name: str, second: str) -> list[tuple[Any, Any]]:
    """Pairs in a list, as JSON text, or in two columns; refuses the row otherwise."""
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RefusedRowError(f"{name}_unreadable") from error
    if isinstance(value, dict):
        columns = cast("dict[str, Any]", value)
        titles, others = columns.get("title"), columns.get(second, columns.get("content"))
        if isinstance(titles, list) and isinstance(others, list) and len(titles) == len(others):
            return list(zip(cast("list[Any]", titles), cast("list[Any]", others), strict=True))
    if isinstance(value, list):
        found = [cast("list[Any]", item) for item in value if isinstance(item, list | tuple)]
        if found and all(len(item) == 2 for item in found) and len(found) == len(value):
            return [(item[0], item[1]) for item in found]
    raise RefusedRowError(f"no_{name}")
