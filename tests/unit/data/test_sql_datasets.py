"""Readers of Spider and BIRD mini-dev: rows in their published form, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.data.dataset import RefusedRowError
from troupe.data.prepare import Options, prepare
from troupe.data.registry import find_dataset
from troupe.data.sources import Source
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


@pytest.mark.parametrize(
    ("name", "file", "given"),
    [("spider", "dev.json", SPIDER), ("bird_minidev", "mini_dev_sqlite.json", BIRD)],
)
def test_question_when_two_databases_are_asked_it_then_it_is_no_repeat(
    name: str, file: str, given: dict[str, Any], tmp_path: Path
) -> None:
    other = {**given, "db_id": "banks", "question_id": 8}
    same = {**given, "question": given["question"].upper(), "question_id": 9}
    (tmp_path / file).write_text(json.dumps([given, other, same]))
    options = Options(splits=("test",))
    test = prepare(find_dataset(name), Source(tmp_path), tmp_path / "out", options).splits["test"]
    assert (test.num_written, test.refused) == (2, {"duplicate": 1})


def test_question_when_another_database_of_train_is_asked_it_then_it_is_no_overlap(
    tmp_path: Path,
) -> None:
    (tmp_path / "dev.json").write_text(json.dumps([SPIDER]))
    train = [{**SPIDER, "db_id": "museum"}, SPIDER]
    (tmp_path / "train_spider.json").write_text(json.dumps(train))
    options = Options(drop_overlap=True)
    made = prepare(find_dataset("spider"), Source(tmp_path), tmp_path / "out", options)
    assert (made.splits["train"].num_written, made.splits["train"].num_dropped) == (1, 1)
