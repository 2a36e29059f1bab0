"""GSM8K: grade-school word problems with integer answers.

Format: https://huggingface.co/datasets/openai/gsm8k and https://github.com/openai/grade-school-math
(fields question and answer; the answer is a worked solution whose last line is ``#### <number>``).
"""

import hashlib
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import text
from troupe_tasks.math.row import MathRow

MARK = "####"


def convert(row: Row) -> dict[str, Any]:
    """A math row; the published rows have no id, so it is a digest of the question."""
    problem = text(row, "question")
    _, mark, answer = text(row, "answer").rpartition(MARK)
    if not mark or not answer.strip():
        raise RefusedRowError("no_final_answer")
    return {
        "id": f"gsm8k/{hashlib.sha256(problem.encode()).hexdigest()[:12]}",
        "problem": problem,
        "answer": answer.strip().replace(",", ""),
        "source": "gsm8k",
    }


DATASET = Dataset(
    name="gsm8k",
    task="math",
    title="GSM8K",
    hub_id="openai/gsm8k",
    splits={
        "train": ("main/train-*.parquet", "train.jsonl"),
        "test": ("main/test-*.parquet", "test.jsonl"),
    },
    schema=MathRow,
    convert=convert,
    licence="MIT",
    citation="Cobbe et al. 2021, Training Verifiers to Solve Math Word Problems, arXiv 2110.14168",
    format_source="https://huggingface.co/datasets/openai/gsm8k",
)
