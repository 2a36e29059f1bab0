"""TLDR: Reddit posts with a title, to be summarised.

Format: https://huggingface.co/datasets/trl-lib/tldr (columns prompt and completion; the prompt is
``SUBREDDIT: r/...``, ``TITLE: ...``, ``POST: ...`` and ends in ``TL;DR:``), made from the filtered
Reddit TL;DR set of https://github.com/openai/summarize-from-feedback, whose JSON Lines (fields id,
subreddit, title, post, summary) are read too.
"""

import hashlib
import re
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.writing.row import WritingRow

MIN_WORDS = 30
"""A shorter post leaves nothing to sum up."""

_TITLE = re.compile(r"^TITLE:", re.MULTILINE)
_POST = re.compile(r"^POST:", re.MULTILINE)
_END = re.compile(r"\s*TL;DR:\s*$")


def convert(row: Row) -> dict[str, Any]:
    """A writing row: title and post, without the publisher's labels."""
    if post := optional_text(row, "post"):
        title = optional_text(row, "title")
    else:
        title, post = _title_and_post(text(row, "prompt"))
    if len(post.split()) < MIN_WORDS:
        raise RefusedRowError("post_too_short")
    body = f"{title}\n\n{post}".strip()
    return {
        "id": f"tldr/{hashlib.sha256(body.encode()).hexdigest()[:12]}",
        "text": body,
        "title": title[:1000],
        "source": "tldr",
    }


def _title_and_post(prompt: str) -> tuple[str, str]:
    """The two fields; whatever labels the post's own lines begin with are part of it."""
    head, *post = _POST.split(_END.sub("", prompt), maxsplit=1)
    title = _TITLE.split(head, maxsplit=1)[1:]
    return "".join(title).strip(), "".join(post).strip()


DATASET = Dataset(
    name="tldr",
    task="tldr",
    title="Reddit TL;DR",
    hub_id="trl-lib/tldr",
    splits={
        "train": ("data/train-*.parquet", "train.jsonl"),
        "validation": ("data/validation-*.parquet", "valid.jsonl"),
        "test": ("data/test-*.parquet", "test.jsonl"),
    },
    schema=WritingRow,
    convert=convert,
    licence="see the publisher: posts are their authors'",
    citation=(
        "Völske et al. 2017, TL;DR: Mining Reddit to Learn Automatic Summarization; Stiennon et "
        "al. 2020, Learning to Summarize from Human Feedback, arXiv 2009.01325"
    ),
    format_source="https://huggingface.co/datasets/trl-lib/tldr",
    contamination_fields=("text",),
)
