"""Spider 1.0: questions and SQL over 166 databases that train and dev do not share.

Format: https://yale-lily.github.io/spider and https://github.com/taoyds/spider
(``train_spider.json``, ``train_others.json`` and ``dev.json``: lists with ``db_id``, ``question``,
``query`` and parses of it; the databases are ``database/<db_id>/<db_id>.sqlite``).
"""

import hashlib
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import text
from troupe_tasks.sql.published import SqlRow, is_readable


def convert(row: Row) -> dict[str, Any]:
    """A question; the published rows have no id, so it is a digest of the row."""
    db_id, question, sql = text(row, "db_id"), text(row, "question"), text(row, "query")
    if not is_readable(sql):
        raise RefusedRowError("query_not_a_select")
    digest = hashlib.sha256(f"{db_id}\n{question}\n{sql}".encode()).hexdigest()[:12]
    return {
        "id": f"spider/{digest}",
        "db_id": db_id,
        "question": question,
        "sql": sql.rstrip("; "),
        "source": "spider",
    }


DATASET = Dataset(
    name="spider",
    task="sql",
    title="Spider 1.0",
    hub_id="xlangai/spider",
    splits={
        "train": ("spider/train-*.parquet", "train_spider.json", "train_others.json"),
        "test": ("spider/validation-*.parquet", "dev.json"),
    },
    schema=SqlRow,
    convert=convert,
    licence="CC BY-SA 4.0",
    citation="Yu et al. 2018, Spider: A Large-Scale Human-Labeled Dataset for Complex and "
    "Cross-Domain Semantic Parsing and Text-to-SQL Task, arXiv 1809.08887",
    format_source="https://github.com/taoyds/spider",
    contamination_fields=("db_id", "question"),
)
