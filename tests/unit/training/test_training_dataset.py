"""Rows of a data set: what is taken, what is refused, and what is held out."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from troupe.cli.settings import settings_from
from troupe.cli.train_commands import run_folder
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.training.dataset import TaskRows
from troupe.training.results import open_run

ROWS = [{"prompt": str(number)} for number in range(40)]


class Columns:
    """The shape of ``datasets.Dataset``: length, items by index, and nothing of a list."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> dict[str, str]:
        return ROWS[range(len(ROWS))[index]]

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))


def test_rows_when_nothing_is_held_out_then_last_tenth_is() -> None:
    rows = TaskRows.of(ROWS)
    assert rows.train == tuple(ROWS[:36])
    assert rows.held_out == tuple(ROWS[36:])


def test_rows_when_many_then_at_most_200_are_held_out() -> None:
    rows = TaskRows.of([{"n": number} for number in range(5000)])
    assert (len(rows.train), len(rows.held_out)) == (4800, 200)


def test_rows_when_they_repeat_then_no_held_out_row_is_a_training_row() -> None:
    repeated = [row for row in ROWS for _ in range(8)]
    random.Random(0).shuffle(repeated)
    rows = TaskRows.of(repeated)
    assert len(rows.held_out) == 4
    assert rows.train == tuple(row for row in repeated if row not in rows.held_out)
    assert len(rows.train) == 36 * 8


def test_rows_when_a_dataset_object_or_a_file_then_equal_to_the_list(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert TaskRows.of(Columns()).digest == TaskRows.of(path).digest == TaskRows.of(ROWS).digest


@pytest.mark.parametrize(
    ("before", "after"),
    [(ROWS, ROWS[::-1]), (ROWS, ROWS[:-1]), (ROWS, [*ROWS[:-1], {"prompt": "x"}])],
)
def test_digest_when_rows_differ_then_differs(before: list[Any], after: list[Any]) -> None:
    assert TaskRows.of(before).digest != TaskRows.of(after).digest


@pytest.mark.parametrize("row", [{"prompt": "hi \ud83d"}, {"prompt": "hi", "of": [{"\udc00": 1}]}])
def test_rows_when_one_holds_a_lone_surrogate_then_is_refused_with_its_number(row: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="held_out row 1 holds a lone surrogate"):
        TaskRows.of(ROWS, [{"prompt": "whole 😀"}, row])


def test_digest_when_a_row_moves_to_held_out_then_differs() -> None:
    assert TaskRows.of(ROWS[:20], ROWS[20:]).digest != TaskRows.of(ROWS[:21], ROWS[21:]).digest


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ([], "no rows"),
        ([1], "row 0 is a int"),
        ({"prompt": "x"}, "give a list of dicts"),
        (7, "give a list of dicts"),
        ([{"x": object()}], "row 0 cannot be written as JSON"),
        ([{"x": float("nan")}], "row 0 cannot be written as JSON"),
    ],
)
def test_rows_when_not_json_objects_then_says_which(dataset: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        TaskRows.of(dataset)


def test_rows_when_held_out_repeats_training_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="held_out row 1 is a training row"):
        TaskRows.of(ROWS[:3], [{"prompt": "new"}, ROWS[2]])


def test_rows_when_the_file_is_below_the_home_folder_then_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n')
    assert TaskRows.of("~/rows.jsonl").train == ({"prompt": "a"},)


def test_run_folders_when_below_the_home_folder_then_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = tmp_path / "runs" / "notebook-1"
    run.mkdir(parents=True)
    (run / "spec.json").write_text("{}")
    assert settings_from(runs_dir=Path("~/runs")).runs_dir == tmp_path / "runs"
    assert run_folder(Path("~/runs/notebook-1")) == run.resolve()
    assert open_run("~/runs/notebook-1").folder == run


def test_rows_when_file_is_missing_then_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        TaskRows.of(tmp_path / "none.jsonl")
