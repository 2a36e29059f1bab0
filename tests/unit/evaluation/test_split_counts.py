"""What a family's splits hold: copies, twins, and how far a success measured on them can be off."""

import json
import math
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from troupe.cli.main import build_app
from troupe.evaluation.split_counts import SplitCount, count_splits
from troupe.tasks.family import SPLITS, Split, Task, TaskFamily, Taskset
from troupe.tasks.optional import split_key_of
from troupe.tasks.registry import load_family
from troupe.tasks.splits import split_of_key
from troupe_tasks.plan_path.family import PlanPath, PlanPathParams

BY_HASH = (
    ("blocksworld", {}),
    ("build", {}),
    ("carry", {}),
    ("discovery", {}),
    ("eight_queens", {}),
    ("guided_walk", {}),
    ("hanabi", {}),
    ("plan_path", {}),
    ("search", {}),
    ("shapes", {}),
    ("sokoban", {}),
    ("sql", {}),
    ("sql", {"split_by": "question"}),
    ("sudoku", {"size": 4}),
    ("sudoku", {"size": 9}),
    ("tools", {}),
)


class Rows:
    """A finite taskset of these texts."""

    def __init__(self, texts: dict[Split, Sequence[str]]) -> None:
        self._texts = texts

    def size(self, split: Split) -> int:
        return len(self._texts[split])

    def task(self, split: Split, index: int) -> Task:
        return Task(f"{split}/{index}", split, index, self._texts[split][index].encode())


class Words(PlanPath):
    """Words that are twins when they have the same letters."""

    def taskset(self) -> Taskset:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Rows({"train": ["abc", "abc", "cab", "xy"], "validation": ["bca"], "test": []})

    def split_key(self, task: Task) -> str:
        return "".join(sorted(task.payload.decode()))


class Untold(Words):
    """The same words, and nothing said of twins."""

    split_key = None  # pyright: ignore[reportAssignmentType]


def _family(kind: type[PlanPath]) -> TaskFamily:
    return kind(PlanPathParams())


def test_count_splits_when_words_are_copies_and_twins_then_each_is_counted() -> None:
    train, validation = count_splits(_family(Words), 10)
    assert train == SplitCount("train", 4, 4, 3, 2, 3, 1, train.margin, train.key_margin)
    assert (validation.num_different, validation.num_keys, validation.num_shared) == (1, 1, 1)
    # Wilson's interval at 0.5 is z / (2 sqrt(n + z^2)) wide on either side.
    z = 1.959964
    assert train.margin == pytest.approx(z / (2 * math.sqrt(3 + z * z)), abs=1e-4)
    assert train.key_margin == pytest.approx(z / (2 * math.sqrt(2 + z * z)), abs=1e-4)


def test_count_splits_when_the_family_says_nothing_of_twins_then_copies_alone_are_counted() -> None:
    train, _ = count_splits(_family(Untold), 2)
    assert (train.num_drawn, train.num_different, train.num_keys) == (2, 1, None)
    assert (train.num_of_commonest, train.num_shared, train.key_margin) == (None, 0, None)


class Leaky(Untold):
    """Two of three tasks are in both splits."""

    def taskset(self) -> Taskset:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Rows({"train": ["abc", "cab", "xy"], "validation": ["xy", "abc"], "test": []})


def test_data_card_when_splits_share_tasks_without_keys_then_they_are_counted_and_it_fails() -> (
    None
):
    train, validation = count_splits(_family(Leaky), 10)
    assert (train.num_shared, validation.num_shared) == (2, 2)
    shown = CliRunner().invoke(build_app(), ["data", "card", f"{__file__}:Leaky"])
    assert shown.exit_code == 1, shown.output


@pytest.mark.parametrize(("name", "params"), BY_HASH)
def test_split_key_when_a_task_is_drawn_then_its_split_is_that_of_the_key(
    name: str, params: dict[str, object]
) -> None:
    family = load_family(name, params)
    for split in SPLITS:
        for index in range(4):
            key = split_key_of(family, family.taskset().task(split, index))
            assert key is not None
            assert split_of_key(key) == split


def test_data_card_when_a_family_has_few_maps_then_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    command = ["data", "card", "plan_path", "--params", '{"size": 4}', "--n", "60"]
    told = CliRunner().invoke(build_app(), command)
    assert told.exit_code == 0, told.output
    counts = json.loads(CliRunner().invoke(build_app(), [*command, "--json"]).stdout)
    assert [count["split"] for count in counts] == list(SPLITS)
    for count in counts:
        assert count["num_keys"] < count["num_drawn"] == 60
        line = next(x for x in told.output.splitlines() if x.split()[:1] == [count["split"]])
        assert f" {count['num_keys']} " in line
        assert f"+-{100 * count['key_margin']:.1f} points" in line


def test_data_card_when_splits_share_twins_then_exits_1() -> None:
    told = CliRunner().invoke(build_app(), ["data", "card", f"{__file__}:Words"])
    assert told.exit_code == 1, told.output
