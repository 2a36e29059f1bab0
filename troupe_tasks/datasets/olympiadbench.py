"""OlympiadBench, the English text-only open-ended mathematics competition problems; evaluation.

Format: the README of https://github.com/OpenBMB/OlympiadBench (fields id, subfield, context,
question, solution, final_answer, is_multiple_answer, unit, answer_type, error) and
https://huggingface.co/datasets/Hothan/OlympiadBench (the same columns as Parquet, a folder for
each subset). The subset is the one called OE_TO_maths_en_COMP.
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import items, optional_text, text
from troupe_tasks.math.row import MathRow

IMAGE = "<img_"


def convert(row: Row) -> dict[str, Any]:
    """A math row; refuses what an exact judge of texts cannot judge.

    That is: problems with images, answers that are right within a given error, several answers
    in separate fields.
    """
    question, context = text(row, "question"), optional_text(row, "context")
    answers = items(row, "final_answer")
    if IMAGE in question or IMAGE in context:
        raise RefusedRowError("needs_image")
    if optional_text(row, "error"):
        raise RefusedRowError("needs_tolerance")
    if len(answers) != 1 or not isinstance(answers[0], str) or not answers[0].strip("$ "):
        raise RefusedRowError("not_one_final_answer")
    return {
        "id": f"olympiadbench/{text(row, 'id')}",
        "problem": f"{context}\n{question}".strip(),
        "answer": answers[0].replace("$", "").strip(),
        "source": "olympiadbench",
        "subject": optional_text(row, "subfield"),
    }


DATASET = Dataset(
    name="olympiadbench",
    task="math",
    title="OlympiadBench (OE_TO_maths_en_COMP)",
    hub_id="Hothan/OlympiadBench",
    splits={
        "test": (
            "OlympiadBench/OE_TO_maths_en_COMP/*.parquet",
            "OE_TO_maths_en_COMP/*.parquet",
            "OE_TO_maths_en_COMP/train/*.parquet",
            "OE_TO_maths_en_COMP.json",
        )
    },
    schema=MathRow,
    convert=convert,
    licence="Apache-2.0",
    citation="He et al. 2024, OlympiadBench, arXiv 2402.14008",
    format_source="https://github.com/OpenBMB/OlympiadBench",
)
