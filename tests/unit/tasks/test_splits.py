"""Splits by the hash of an instance, and tasksets that draw until their split comes up."""

from collections import Counter
from random import Random

import pytest

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split
from troupe.tasks.splits import DrawnTaskset, split_of_key


def _draw(rng: Random, split: Split) -> bytes | None:
    key = str(rng.randrange(10**6))
    return key.encode() if split_of_key(key) == split else None


TASKSET = DrawnTaskset("numbers", 5, _draw, hint="use more numbers")


def test_split_of_key_over_many_keys_then_shares_are_eight_to_one_to_one() -> None:
    shares = Counter(split_of_key(str(number)) for number in range(5000))
    assert shares["train"] / 5000 == pytest.approx(0.8, abs=0.03)
    assert shares["validation"] / 5000 == pytest.approx(0.1, abs=0.03)
    assert shares["test"] / 5000 == pytest.approx(0.1, abs=0.03)


def test_task_when_drawn_then_names_itself_and_belongs_to_its_split() -> None:
    for split in SPLITS:
        task = TASKSET.task(split, 3)
        assert task.id == f"numbers/{split}/3"
        assert split_of_key(task.payload.decode()) == split


def test_task_when_asked_again_or_in_another_order_then_is_the_same() -> None:
    forward = [TASKSET.task("train", index) for index in range(10)]
    assert [TASKSET.task("train", index) for index in reversed(range(10))] == forward[::-1]


def test_task_when_nothing_is_found_then_says_how_often_it_tried_and_what_to_do() -> None:
    nothing = DrawnTaskset("none", 0, lambda rng, split: None, hint="ask for less", max_draws=7)
    with pytest.raises(InvalidArgumentError, match="7 draws; ask for less"):
        nothing.task("test", 0)


def test_task_when_the_index_is_negative_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="-1"):
        TASKSET.task("train", -1)
