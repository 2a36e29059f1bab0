"""AIME 2025: 30 problems, integer answers from 0 to 999; evaluation only.

Format: https://huggingface.co/datasets/opencompass/AIME2025 (aime2025-I.jsonl and
aime2025-II.jsonl, fields question and answer). Copies that call the question problem are read too.
"""

import hashlib
from typing import Any

from troupe.data.dataset import Dataset, Row
from troupe.data.fields import text
from troupe_tasks.datasets.aime24 import aime_answer
from troupe_tasks.math.row import MathRow


def convert(row: Row) -> dict[str, Any]:
    """A math row; the published rows have no id, so it is a digest of the question."""
    problem = text(row, "question", "problem")
    return {
        "id": f"aime25/{hashlib.sha256(problem.encode()).hexdigest()[:12]}",
        "problem": problem,
        "answer": aime_answer(text(row, "answer")),
        "source": "aime25",
    }


DATASET = Dataset(
    name="aime25",
    task="math",
    title="AIME 2025",
    hub_id="opencompass/AIME2025",
    splits={"test": ("aime2025-I.jsonl", "aime2025-II.jsonl")},
    schema=MathRow,
    convert=convert,
    licence="MIT (the card's); problems: Mathematical Association of America",
    citation="American Invitational Mathematics Examination 2025, I and II",
    format_source="https://huggingface.co/datasets/opencompass/AIME2025",
)
