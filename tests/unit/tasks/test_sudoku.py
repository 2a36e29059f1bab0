"""Sudoku's rules, its solver, its one solution, its twins and its tasks."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.puzzles.answers import read_answer
from troupe_tasks.sudoku import Sudoku, SudokuParams
from troupe_tasks.sudoku.generator import split_of
from troupe_tasks.sudoku.grid import EMPTY, canonical, clashes, is_unique, peers, solutions
from troupe_tasks.sudoku.puzzle import SudokuPuzzle

FAMILY = Sudoku(SudokuParams(max_actions=4))
ENV = FAMILY.environment()

SOLUTION = "1234" + "3412" + "2143" + "4321"
GIVENS = "1.34" + "341." + "2143" + ".321"
TASK = Task("by hand", "train", 0, f"{GIVENS}/{SOLUTION}".encode())

# An example that is printed in many books, with its solution.
BOOK = (
    "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
    "534678912672195348198342567859761423426853791713924856961537284287419635345286179",
)


def test_observe_at_first_then_names_givens_and_open_cells() -> None:
    (message,) = ENV.observe(ENV.reset(TASK), "planner")
    assert message.content == (
        "given a1 1 c1 3 d1 4 a2 3 b2 4 c2 1 a3 2 b3 1 c3 4 d3 3 b4 3 c4 2 d4 1 "
        "filled open b1 d2 a4 planner"
    )


def test_observe_when_cells_were_filled_then_tells_them_from_givens_and_shows_clashes() -> None:
    state = ENV.step(ENV.reset(TASK), "planner", "fill b1 2 a4 3").state
    assert ENV.observe(state, "planner")[0].content.endswith(
        "filled b1 2 a4 3 open d2 clash a2 a4 b4 planner"
    )


def test_observe_when_verbose_then_draws_the_boxes() -> None:
    env = Sudoku(SudokuParams(style="verbose")).environment()
    system, user = env.observe(env.reset(TASK), "planner")
    assert "1 .  3 4\n3 4  1 .\n\n2 1  4 3\n. 3  2 1" in user.content
    assert "at most 6 cells" in system.content


def test_step_when_cells_are_right_then_pays_their_share_and_the_last_one_pays_the_rest() -> None:
    first = ENV.step(ENV.reset(TASK), "planner", "fill b1 2")
    assert first.team_reward == pytest.approx(1 / 6)
    assert first.local_rewards == {"format": 0.0, "legal": 0.0, "progress": pytest.approx(1 / 3)}
    last = ENV.step(first.state, "planner", "fill d2=2, a4=4")
    assert last.team_reward == pytest.approx(5 / 6)
    assert last.done
    assert last.success


def test_step_when_a_given_is_edited_then_is_refused_unpaid_and_unchanged() -> None:
    done = ENV.step(ENV.reset(TASK), "planner", "fill a1 2 b1 2 d4 4")
    assert done.info["refused"] == [1, 3]
    assert done.info["board"].splitlines()[0] == "1 2  3 4"
    assert done.local_rewards["legal"] == -1.0
    for action in ("fill a1 1", "fill e1 2", "fill b1 5"):
        refused = ENV.step(ENV.reset(TASK), "planner", action)
        assert refused.info["refused"] == [1]
        assert (refused.team_reward, refused.local_rewards["legal"]) == (0.0, -1.0)


def test_step_when_another_correct_grid_is_answered_then_is_not_solved() -> None:
    other = "".join(str(5 - int(digit)) for digit in SOLUTION)
    assert clashes(other) == []
    cells = [f"{'abcd'[cell % 4]}{cell // 4 + 1} {digit}" for cell, digit in enumerate(other)]
    env = Sudoku(SudokuParams(max_actions=16)).environment()
    done = env.step(env.reset(TASK), "planner", " ".join(("fill", *cells)))
    assert not done.success
    assert len(done.info["refused"]) == 13
    assert done.team_reward == 0.0


def test_step_when_guessing_cell_by_cell_then_each_cell_is_paid_once() -> None:
    state, rewards = ENV.reset(TASK), []
    for digit in (1, 2, 3, 2, 4, 2):
        done = ENV.step(state, "planner", f"fill b1 {digit}")
        state = done.state
        rewards.append(done.team_reward)
    assert rewards == pytest.approx([0, 1 / 6, 0, 0, 0, 0])


def test_step_when_one_answer_guesses_on_then_only_its_last_digits_count() -> None:
    state = ENV.step(ENV.reset(TASK), "planner", "fill d2 2 a4 4").state
    guessed = ENV.step(state, "planner", "fill b1 1 b1 2 b1 3 b1 4")
    assert (guessed.team_reward, guessed.success) == (0.0, False)
    assert ENV.step(state, "planner", "fill b1 1 b1 3 b1 4 b1 2").success


def test_step_when_a_right_cell_is_spoilt_then_costs_and_is_not_paid_again() -> None:
    state = ENV.step(ENV.reset(TASK), "planner", "fill b1 2").state
    spoilt = ENV.step(state, "planner", "fill b1 3")
    assert spoilt.local_rewards["progress"] == pytest.approx(-1 / 3)
    mended = ENV.step(spoilt.state, "planner", "fill b1 2")
    assert (spoilt.team_reward, mended.team_reward) == (0.0, 0.0)


def test_observe_when_the_tool_tries_a_digit_then_shows_clashes_and_no_solution() -> None:
    state = ENV.step(ENV.reset(TASK), "tool", "try b1 4").state
    assert ENV.observe(state, "planner")[0].content.endswith(
        "tried b1 4 clear clash b1 d1 b2 planner"
    )
    # A guess that breaks no rule reads the same whether it is right or not.
    task = FAMILY.taskset().task("train", 0)
    seen = "".join(message.content for message in ENV.observe(ENV.reset(task), "planner"))
    assert task.payload.decode().partition("/")[2] not in seen.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "actions", "is_well_formed"),
    [
        ("fill b1 2 a4 4", ("b1 2", "a4 4"), True),
        ("Row 1 lacks a 2.\nfill: b1=2, a4=4", ("b1 2", "a4 4"), True),
        ("fill [b1: 2; a4: 4]", ("b1 2", "a4 4"), True),
        ("fill b1 2\nfill a4 4", ("a4 4",), True),
        ("fill b1 2 [[1,2,3,4]]", ("b1 2",), False),
        ("[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]", (), False),
        ('fill {"b1": 2}', (), False),
        ("fill b1 22", (), False),
        ("fill b1", (), False),
        ("try b1 2", (), False),
    ],
)
def test_read_answer_on_each_shape_then_reads_cells_and_form(
    text: str, actions: tuple[str, ...], is_well_formed: bool
) -> None:
    answer = read_answer("fill", SudokuPuzzle.item, text, 4)
    assert (answer.actions, answer.is_well_formed) == (actions, is_well_formed)


def test_peers_of_a_cell_then_are_its_row_column_and_box() -> None:
    assert peers(4)[0] == (1, 2, 3, 4, 5, 8, 12)
    assert all(len(near) == 20 for near in peers(9))


def test_solutions_of_a_printed_puzzle_then_are_the_printed_one() -> None:
    assert list(solutions(BOOK[0])) == [BOOK[1]]
    assert is_unique(BOOK[0])


def test_solutions_when_there_are_none_or_many_then_is_not_unique() -> None:
    assert not is_unique("11" + EMPTY * 14)
    assert not is_unique("123." + "...4" + EMPTY * 8)
    assert not is_unique(EMPTY * 16)
    assert len(list(solutions(EMPTY * 16))) == 288


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("params", [{"holes": 10}, {"size": 9, "holes": 40}])
def test_task_whatever_the_seed_then_is_its_splits_and_has_one_solution(
    split: Split, seed: int, params: dict[str, int]
) -> None:
    taskset = Sudoku(SudokuParams.model_validate({"seed": seed, **params})).taskset()
    for index in range(4 if "size" in params else 12):
        givens, _, complete = taskset.task(split, index).payload.decode().partition("/")
        assert split_of(givens, complete) == split
        assert givens.count(EMPTY) == params["holes"]
        assert list(solutions(givens)) == [complete]


def test_task_over_many_indices_then_no_grid_or_twin_is_in_two_splits() -> None:
    taskset = FAMILY.taskset()
    seen = {
        split: {
            canonical(taskset.task(split, index).payload.decode().partition("/")[0])
            for index in range(30)
        }
        for split in SPLITS
    }
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]
    assert not seen["validation"] & seen["test"]
    assert min(len(twins) for twins in seen.values()) > 10


@settings(max_examples=40)
@given(st.integers(0, 500), st.permutations("1234"), st.booleans(), st.booleans(), st.booleans())
def test_canonical_when_a_grid_is_renamed_swapped_or_mirrored_then_is_the_same(
    index: int, names: list[str], is_mirrored: bool, swaps_bands: bool, swaps_rows: bool
) -> None:
    givens = FAMILY.taskset().task("train", index % 20).payload.decode().partition("/")[0]
    twin = givens.translate(str.maketrans("1234", "".join(names)))
    rows = [twin[start : start + 4] for start in (0, 4, 8, 12)]
    if is_mirrored:
        rows = ["".join(column) for column in zip(*rows, strict=True)]
    if swaps_bands:
        rows = rows[2:] + rows[:2]
    if swaps_rows:
        rows[0], rows[1] = rows[1], rows[0]
    assert canonical("".join(rows)) == canonical(givens)


def test_canonical_of_all_complete_4x4_grids_then_finds_the_two_kinds() -> None:
    assert len({canonical(grid) for grid in solutions(EMPTY * 16)}) == 2


@pytest.mark.parametrize("params", [{"size": 6}, {"size": 4, "holes": 11}, {"holes": 2}])
def test_params_when_impossible_then_are_refused(params: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        SudokuParams.model_validate(params)


def test_demonstrate_on_nine_by_nine_then_solves() -> None:
    family = Sudoku(SudokuParams(size=9, holes=50, max_actions=20))
    env, rng = family.environment(), Random(0)
    for index in range(3):
        state = env.reset(family.taskset().task("test", index))
        for _ in range(3):
            done = env.step(state, "planner", family.demonstrate(state, "planner", rng))
            state = done.state
        assert done.success


def test_task_when_asked_for_too_many_holes_then_says_so() -> None:
    taskset = Sudoku(SudokuParams(size=9, holes=54)).taskset()
    assert taskset.task("train", 0).payload.count(b".") == 54
    with pytest.raises(InvalidArgumentError):
        taskset.task("train", -5)


def test_random_play_when_counted_then_a_quarter_of_the_cells_is_right() -> None:
    family, rng, num_right, num_solved = Sudoku(SudokuParams(holes=4)), Random(0), 0, 0
    env, num_tasks = family.environment(), 40
    for index in range(num_tasks):
        state = env.reset(family.taskset().task("train", index))
        for _ in range(20):
            done = env.step(state, "planner", family.random_action(state, "planner", rng))
            num_right += 4 - done.info["distance"]
            num_solved += done.success
    num_plays = num_tasks * 20
    spread = math.sqrt(0.25 * 0.75 / (4 * num_plays))
    assert num_right / (4 * num_plays) == pytest.approx(1 / 4, abs=4 * spread)
    chance = 1 / 4**4
    assert num_solved / num_plays == pytest.approx(chance, abs=4 * math.sqrt(chance / num_plays))
