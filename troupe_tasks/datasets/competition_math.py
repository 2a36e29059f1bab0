r"""MATH: competition problems in seven subjects and five levels.

Format: https://huggingface.co/datasets/EleutherAI/hendrycks_math (one folder a subject; columns
problem, level, type, solution) and https://github.com/hendrycks/math (one JSON file a problem,
the same fields). The answer is the last ``\boxed{}`` of the solution.
"""

import hashlib
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.math.boxed import read_boxed
from troupe_tasks.math.row import MathRow

FIGURE = "[asy]"


def convert(row: Row) -> dict[str, Any]:
    """A math row; refuses problems with a figure, whose source code is no text to reason on."""
    problem = text(row, "problem")
    if FIGURE in problem:
        raise RefusedRowError("needs_figure")
    answer = optional_text(row, "answer") or read_boxed(text(row, "solution")).answer
    if not answer:
        raise RefusedRowError("no_boxed_answer")
    return {
        "id": f"math/{hashlib.sha256(problem.encode()).hexdigest()[:12]}",
        "problem": problem,
        "answer": answer,
        "source": "math",
        "subject": optional_text(row, "type", "subject"),
        "level": optional_text(row, "level"),
    }


DATASET = Dataset(
    name="math",
    task="math",
    title="MATH",
    hub_id="EleutherAI/hendrycks_math",
    splits={
        "train": ("*/train-*.parquet", "train/*/*.json", "train.jsonl"),
        "test": ("*/test-*.parquet", "test/*/*.json", "test.jsonl"),
    },
    schema=MathRow,
    convert=convert,
    licence="MIT",
    citation=(
        "Hendrycks et al. 2021, Measuring Mathematical Problem Solving With the MATH Dataset, "
        "arXiv 2103.03874"
    ),
    format_source="https://huggingface.co/datasets/EleutherAI/hendrycks_math",
)
