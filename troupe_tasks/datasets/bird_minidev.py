"""BIRD mini-dev: 500 questions with hints over 11 databases, for evaluation.

Format: https://github.com/bird-bench/mini_dev (``mini_dev_sqlite.json``: a list with
``question_id``, ``db_id``, ``question``, ``evidence``, ``SQL`` and ``difficulty``; the databases
are ``dev_databases/<db_id>/<db_id>.sqlite``).
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.sql.published import SqlRow, is_readable


def convert(row: Row) -> dict[str, Any]:
    """A question with its hint."""
    sql = text(row, "SQL")
    if not is_readable(sql):
        raise RefusedRowError("query_not_a_select")
    return {
        "id": f"bird_minidev/{text(row, 'question_id')}",
        "db_id": text(row, "db_id"),
        "question": text(row, "question"),
        "evidence": optional_text(row, "evidence"),
        "difficulty": optional_text(row, "difficulty"),
        "sql": sql.rstrip("; \n"),
        "source": "bird_minidev",
    }


DATASET = Dataset(
    name="bird_minidev",
    task="sql",
    title="BIRD mini-dev",
    hub_id="birdsql/bird_mini_dev",
    splits={"test": ("data/mini_dev_sqlite-*.json", "mini_dev_sqlite.json")},
    schema=SqlRow,
    convert=convert,
    licence="CC BY-SA 4.0",
    citation="Li et al. 2023, Can LLM Already Serve as A Database Interface? A BIg Bench for "
    "Large-Scale Database Grounded Text-to-SQLs, arXiv 2305.03111",
    format_source="https://github.com/bird-bench/mini_dev",
    contamination_fields=("db_id", "question"),
)
