import json

from troupe.tasks.splits import split_of_key
from troupe_tasks.importers.rows import RowTaskset, splits_of
from troupe_tasks.importers.world import Row


def rows(pool: str, keys: list[str]) -> list[Row]:
    return [Row(pool, index, key) for index, key in enumerate(keys)]


def test_splits_when_there_is_one_pool_then_each_row_is_where_its_content_says() -> None:
    train = rows("train", [f"k{i}" for i in range(200)])
    found = splits_of(train)
    assert sum(len(numbers) for numbers in found.values()) == 200
    for split, numbers in found.items():
        assert numbers
        assert {split_of_key(train[n].key) for n in numbers} == {split}


def test_splits_when_rows_for_evaluation_are_new_then_they_are_the_test_split() -> None:
    whole = rows("train", [f"k{i}" for i in range(100)]) + rows("test", ["k1", "e1", "e2", "e3"])
    found = splits_of(whole)
    assert [whole[n].key for n in found["test"]] == ["e1", "e2", "e3"]
    assert {whole[n].key for n in found["train"]}.isdisjoint({"e1", "e2", "e3"})


def test_splits_when_evaluation_repeats_what_is_trained_on_then_content_decides() -> None:
    keys = [f"k{i}" for i in range(100)]
    found = splits_of(rows("train", keys) + rows("test", keys[:50]))
    assert sum(len(numbers) for numbers in found.values()) == 100
    assert all(number < 100 for numbers in found.values() for number in numbers)


def test_splits_when_a_few_rows_fall_into_one_then_every_split_has_one() -> None:
    keys = [key for i in range(100) if split_of_key(key := f"k{i}") == "train"][:4]
    found = splits_of(rows("train", keys))
    assert {split: len(numbers) for split, numbers in found.items()} == {
        "train": 2,
        "validation": 1,
        "test": 1,
    }


def test_task_when_it_is_drawn_then_carries_the_number_and_the_content_of_its_row() -> None:
    taskset = RowTaskset("verifiers:x", rows("train", [f"k{i}" for i in range(50)]))
    first = taskset.task("train", 0)
    assert first.id == "verifiers:x/train/0"
    payload = json.loads(first.payload)
    assert payload["key"] == f"k{payload['row']}"
