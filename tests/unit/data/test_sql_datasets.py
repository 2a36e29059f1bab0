"""Readers of Spider and BIRD mini-dev: rows in their published form, and what is refused."""

import pytest

from troupe.data.dataset import RefusedRowError
from troupe.data.registry import find_dataset
from troupe_tasks.datasets import bird_minidev, spider
from troupe_tasks.sql.published import SqlRow

SPIDER = {
    "db_id": "concert_singer",
    "query": "SELECT count(*) FROM singer;",
    "query_toks": ["SELECT", "count", "(", "*", ")", "FROM", "singer"],
    "query_toks_no_value": ["select", "count", "(", "*", ")", "from", "singer"],
    "question": "How many singers do we have?",
    "question_toks": ["How", "many", "singers", "do", "we", "have", "?"],
    "sql": {"except": None, "from": {"conds": [], "table_units": [["table_unit", 1]]}},
}
BIRD = {
    "question_id": 1507,
    "db_id": "debit_card_specializing",
    "question": "Please list the disparate time of the transactions.",
    "evidence": "",
    "SQL": "SELECT DISTINCT T1.Time FROM transactions_1k AS T1\n;",
    "difficulty": "simple",
}


def test_spider_row_when_converted_then_keeps_the_query_and_has_a_lasting_id() -> None:
    row = SqlRow.model_validate(spider.convert(SPIDER))
    assert (row.db_id, row.sql) == ("concert_singer", "SELECT count(*) FROM singer")
    assert row.id == spider.convert(SPIDER)["id"] != spider.convert({**SPIDER, "db_id": "x"})["id"]


def test_bird_row_when_converted_then_keeps_hint_and_difficulty() -> None:
    row = SqlRow.model_validate(bird_minidev.convert({**BIRD, "evidence": " a hint "}))
    assert (row.id, row.evidence, row.difficulty) == ("bird_minidev/1507", "a hint", "simple")
    assert row.sql == "SELECT DISTINCT T1.Time FROM transactions_1k AS T1"
    assert SqlRow.model_validate(bird_minidev.convert(BIRD)).evidence == ""


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("spider", {**SPIDER, "query": "DELETE FROM singer"}, "query_not_a_select"),
        ("spider", {**SPIDER, "question": " "}, "no_question"),
        ("bird_minidev", {**BIRD, "SQL": None}, "no_sql"),
        ("bird_minidev", {**BIRD, "SQL": "PRAGMA x"}, "query_not_a_select"),
    ],
)
def test_row_when_it_cannot_be_used_then_is_refused_with_a_reason(
    name: str, row: dict[str, object], reason: str
) -> None:
    with pytest.raises(RefusedRowError) as caught:
        find_dataset(name).convert(row)
    assert caught.value.reason == reason
