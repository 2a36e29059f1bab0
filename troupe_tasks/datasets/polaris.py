"""Polaris-53K: the training problems of the Polaris models, and of Stronger-MAS for mathematics.

Format: the card of https://huggingface.co/datasets/POLARIS-Project/Polaris-Dataset-53K (fields
problem, answer, difficulty, the last a pass rate such as ``4/8``).
"""

import hashlib
from typing import Any

from troupe.data.dataset import Dataset, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.math.row import MathRow


def convert(row: Row) -> dict[str, Any]:
    """A math row whose level is the published pass rate."""
    problem = text(row, "problem")
    return {
        "id": f"polaris/{hashlib.sha256(problem.encode()).hexdigest()[:12]}",
        "problem": problem,
        "answer": text(row, "answer"),
        "source": "polaris",
        "level": optional_text(row, "difficulty"),
    }


DATASET = Dataset(
    name="polaris",
    task="math",
    title="Polaris-Dataset-53K",
    hub_id="POLARIS-Project/Polaris-Dataset-53K",
    splits={"train": ("*.jsonl", "*.parquet", "data/*.parquet")},
    schema=MathRow,
    convert=convert,
    licence="Apache-2.0",
    citation=(
        "An et al. 2025, POLARIS: A Post-Training Recipe for Scaling Reinforcement Learning on "
        "Advanced Reasoning Models, https://hkunlp.github.io/blog/2025/Polaris"
    ),
    format_source="https://huggingface.co/datasets/POLARIS-Project/Polaris-Dataset-53K",
)
