"""AIME 2024: 30 problems, integer answers from 0 to 999; evaluation only.

Format: dataset card of https://huggingface.co/datasets/HuggingFaceH4/aime_2024 (columns id,
problem, solution, answer, url, year; one file, published as its train split). The copy
Maxwell-Jia/AIME_2024 writes the same fields as ID, Problem, Solution, Answer and is read too.
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import text
from troupe_tasks.math.row import MathRow

MAX_ANSWER = 999


def convert(row: Row) -> dict[str, Any]:
    """A math row; refuses answers that are no AIME answers."""
    return {
        "id": f"aime24/{text(row, 'id', 'ID')}",
        "problem": text(row, "problem", "Problem"),
        "answer": aime_answer(text(row, "answer", "Answer")),
        "source": "aime24",
    }


def aime_answer(answer: str) -> str:
    r"""An integer from 0 to 999 without leading zeros; ``336^\circ`` is read as 336."""
    digits = answer.replace("^\\circ", "").replace("$", "").strip()
    if not digits.isdecimal() or int(digits) > MAX_ANSWER:
        raise RefusedRowError("answer_not_0_to_999")
    return str(int(digits))


DATASET = Dataset(
    name="aime24",
    task="math",
    title="AIME 2024",
    hub_id="HuggingFaceH4/aime_2024",
    splits={"test": ("data/train-*.parquet", "aime_2024_problems.parquet")},
    schema=MathRow,
    convert=convert,
    licence="problems: Mathematical Association of America; the card names no licence",
    citation="American Invitational Mathematics Examination 2024, I and II",
    format_source="https://huggingface.co/datasets/HuggingFaceH4/aime_2024",
)
