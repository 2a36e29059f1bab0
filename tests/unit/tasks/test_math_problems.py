"""The built-in problems: exact, found again by their own programs, and in one split each."""

import contextlib
import io
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS
from troupe_tasks.math.equivalence import Equivalence
from troupe_tasks.math.family import Math, MathParams
from troupe_tasks.math.literal import read_literal
from troupe_tasks.math.problems import LEVELS, SUBJECTS, split_of
from troupe_tasks.math.problems.combinatorics import dice, strings_without
from troupe_tasks.math.problems.made import Made, Template, polynomial, shown
from troupe_tasks.math.row import MathRow

TEMPLATES = [template for templates in SUBJECTS.values() for template in templates]


def _printed(made: Made) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(made.program, {"__name__": "__main__"})
    return out.getvalue().strip()


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.__name__)
def test_template_when_its_program_runs_then_prints_the_answer(template: Template) -> None:
    equivalence = Equivalence()
    for level in LEVELS:
        for seed in range(4):
            made = template(Random(seed), level)
            assert equivalence.is_equal(made.answer, _printed(made)), made
            assert read_literal(made.answer) is not None


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.__name__)
def test_template_when_drawn_often_then_gives_many_problems(template: Template) -> None:
    for level in LEVELS:
        assert len({template(Random(seed), level).problem for seed in range(40)}) >= 12


def test_dice_when_two_coins_like_dice_then_matches_a_hand_count() -> None:
    # Two four-sided dice: the sum 4 comes as 1+3, 2+2, 3+1 of 16 rolls.
    made = next(
        m for seed in range(500) if "sum is $4$" in (m := dice(Random(seed), 1)).problem
        and "with $4$ sides" in m.problem
    )  # fmt: skip
    assert made.answer == r"\frac{3}{16}"


def test_strings_without_when_small_then_matches_a_hand_count() -> None:
    # Length 3 over {a, b}, a banned from standing twice: aba abb bab bba bbb.
    wanted = "length $3$ over an alphabet of $2$ letters are there in which none of the first $1$"
    made = next(
        m for seed in range(500) if wanted in (m := strings_without(Random(seed), 1)).problem
    )
    assert made.answer == "5"


def test_problems_when_drawn_for_each_split_then_no_text_is_in_two() -> None:
    taskset = Math(MathParams()).taskset()
    texts = {
        split: {
            MathRow.model_validate_json(taskset.task(split, index).payload).problem
            for index in range(120)
        }
        for split in SPLITS
    }
    assert all(split_of(text) == split for split, found in texts.items() for text in found)
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert all(len(found) > 100 for found in texts.values())


def test_taskset_when_thirty_tasks_are_drawn_then_has_each_subject_and_level_equally() -> None:
    taskset = Math(MathParams()).taskset()
    rows = [
        MathRow.model_validate_json(taskset.task("train", index).payload) for index in range(30)
    ]
    for subject in SUBJECTS:
        for level in LEVELS:
            of_kind = [row for row in rows if (row.subject, row.level) == (subject, str(level))]
            assert len(of_kind) == 2


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(SPLITS), st.integers(0, 5))
def test_task_when_drawn_again_then_is_the_same(index: int, split: str, seed: int) -> None:
    params = MathParams(seed=seed)
    first = Math(params).taskset().task(split, index)
    assert Math(params).taskset().task(split, index) == first


def test_task_when_the_index_is_negative_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="count from 0"):
        Math(MathParams()).taskset().task("train", -1)


def test_polynomial_and_shown_when_written_then_read_as_people_write_them() -> None:
    from fractions import Fraction

    assert polynomial([1, 0, -1, 4]) == "x^{3} - x + 4"
    assert polynomial([-2, 1]) == "-2x + 1"
    assert polynomial([0]) == "0"
    assert shown(Fraction(6, 8)) == r"\frac{3}{4}"
    assert shown(Fraction(8, 4)) == "2"
