"""A row that is in train and held out is refused, whichever family reads the files."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import TaskFamily
from troupe.tasks.registry import load_family

TEST = {"input": "1\n", "output": "2\n"}
CODE = {"id": "a", "kind": "stdin", "statement": "Double it.", "hidden_tests": [TEST]}
SEARCH = {"id": "a", "question": "Which river?", "answers": ["Oder"], "support": ["Oder"]}
SQL = {"id": "a", "db_id": "pets", "question": "How many pets?", "sql": "SELECT 1"}
TABLE = {
    "id": "a",
    "names": ["x"],
    "readings": [[n, n] for n in range(4)],
    "held_out": [[9, 9], [8, 8]],
}
PORT = {"direction": "output", "name": "q", "width": 1}
CIRCUIT = {"id": "a", "words": "q is a & b.", "reference": "module TopModule", "ports": [PORT]}
TICKET = {"id": "a", "ticket": "You want a refund.", "actions": []}
MATH = {"id": "a", "problem": "What is 3 + 4?", "answer": "7", "source": "s"}
POST = {"id": "a", "text": "My cat sleeps all day.", "source": "s"}
PLAN = {"id": "a", "materials": {"s": "stone"}, "layers": [["s.s"]]}

ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "code": (CODE, {"statement": "Halve it."}),
    "code_cooperative": (CODE, {"statement": "Halve it."}),
    "code_best_of": (CODE, {"statement": "Halve it."}),
    "search": (SEARCH, {"question": "Which lake?"}),
    "sql": (SQL, {"db_id": "shops"}),
    "discovery": (TABLE, {"readings": [[n, 2 * n] for n in range(4)]}),
    "verilog": (CIRCUIT, {"words": "q is a | b."}),
    "tools": (TICKET, {"ticket": "You want a coat."}),
    "build": (PLAN, {"layers": [["ss."]]}),
    "math": (MATH, {"problem": "What is 3 - 4?"}),
    "tldr": (POST, {"text": "My dog sleeps all day."}),
}
"""A row of each family, and what another row has that is not the same."""


def _family(name: str, folder: Path, train: dict[str, Any], test: dict[str, Any]) -> TaskFamily:
    for split, row in (("train", {**train, "id": "b"}), ("test", test)):
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    params: dict[str, Any] = {"data": folder}
    if name == "tools":
        params = {"tau2": {**params, "db": folder / "db.json"}}
        (folder / "db.json").write_text("{}")
    if name == "sql":
        params["databases"] = folder
    if name == "verilog":
        params["is_solo"] = True
    return load_family(name, json.loads(json.dumps(params, default=str)))


@pytest.mark.parametrize("name", ROWS)
def test_taskset_when_a_test_row_is_a_train_row_then_is_refused_with_its_number(
    name: str, tmp_path: Path
) -> None:
    row, _ = ROWS[name]
    family = _family(name, tmp_path, row, row)
    with pytest.raises(InvalidArgumentError, match=r"1 rows of .*test\.jsonl .*\(from 0\): 0;"):
        family.taskset()


@pytest.mark.parametrize("name", ROWS)
def test_taskset_when_a_test_row_differs_where_it_counts_then_is_accepted(
    name: str, tmp_path: Path
) -> None:
    row, other = ROWS[name]
    taskset = _family(name, tmp_path, row, {**row, **other}).taskset()
    assert [taskset.size(split) for split in ("train", "validation", "test")] == [1, 0, 1]


def test_taskset_when_nothing_is_compared_then_is_accepted(tmp_path: Path) -> None:
    empty = {**MATH, "problem": " "}
    assert _family("math", tmp_path, empty, empty).taskset().size("test") == 1


@pytest.mark.parametrize(
    ("problem", "other"),
    [("3 ± 4 = ?", "3 ÷ 4 = ?"), ("Solve .5x = 1.", "Solve 5x = 1."), ("2*(3+4)", "(2*3)+4")],
)
def test_taskset_when_a_sign_of_a_test_problem_differs_then_is_accepted(
    problem: str, other: str, tmp_path: Path
) -> None:
    train, test = ({**MATH, "problem": text} for text in (problem, other))
    assert _family("math", tmp_path, train, test).taskset().size("test") == 1
