"""Eight Queens' rules, the number of its solutions, its distance and its tasks."""

import math
from functools import cache
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.eight_queens import EightQueens, EightQueensParams
from troupe_tasks.eight_queens.generator import MIN_BOARDS, split_of
from troupe_tasks.eight_queens.puzzle import EightQueensPuzzle
from troupe_tasks.eight_queens.squares import (
    NONE,
    all_solutions,
    attacked,
    bits,
    board_of,
    completions,
    is_solved,
    queens,
    read_instance,
    symmetries,
    write_instance,
)
from troupe_tasks.puzzles.answers import read_answer

FAMILY = EightQueens(EightQueensParams(size=6, given=1, closed=4, max_actions=4))
ENV = FAMILY.environment()
PUZZLE = EightQueensPuzzle()

# On 4x4 there are two solutions: a2 b4 c1 d3 and its mirror image a3 b1 c4 d2. Closing a3
# leaves the first one.
TASK = Task("by hand", "train", 0, b".d../a3")


def test_observe_at_first_then_names_queens_closed_squares_and_open_files() -> None:
    (message,) = ENV.observe(ENV.reset(TASK), "planner")
    assert message.content == "board 4 given b4 closed a3 placed open a c d planner"


def test_observe_when_queens_attack_each_other_then_shows_them() -> None:
    state = ENV.step(ENV.reset(TASK), "planner", "place a2 c2").state
    assert ENV.observe(state, "planner")[0].content == (
        "board 4 given b4 closed a3 placed a2 c2 open d attacked a2 c2 planner"
    )
    tried = ENV.step(state, "tool", "try d2").state
    assert ENV.observe(tried, "planner")[0].content.endswith(
        "tried d2 clear attacked a2 b4 c2 d2 planner"
    )


def test_observe_when_verbose_then_draws_the_board() -> None:
    env = EightQueens(EightQueensParams(style="verbose")).environment()
    state = env.step(env.reset(TASK), "planner", "place c1").state
    _, user = env.observe(state, "planner")
    assert ". . q .\n. . . .\nx . . .\n. Q . ." in user.content
    assert "Files without a queen: a, d" in user.content


def test_step_when_queens_fit_the_solution_then_pays_their_share_and_the_last_pays_the_rest() -> (
    None
):
    first = ENV.step(ENV.reset(TASK), "planner", "place a2")
    assert first.team_reward == pytest.approx(1 / 6)
    assert first.local_rewards == {"format": 0.0, "legal": 0.0, "progress": pytest.approx(1 / 3)}
    last = ENV.step(first.state, "planner", "place c1, d3")
    assert last.team_reward == pytest.approx(5 / 6)
    assert last.done
    assert last.success


def test_step_when_a_queen_leads_nowhere_then_is_not_paid_and_can_be_moved() -> None:
    wrong = ENV.step(ENV.reset(TASK), "planner", "place a1")
    assert (wrong.team_reward, wrong.local_rewards["progress"]) == (0.0, 0.0)
    mended = ENV.step(wrong.state, "planner", "place a2")
    assert mended.team_reward == pytest.approx(1 / 6)
    spoilt = ENV.step(mended.state, "planner", "place a1")
    again = ENV.step(spoilt.state, "planner", "place a2")
    assert (spoilt.team_reward, again.team_reward) == (0.0, 0.0)
    assert spoilt.local_rewards["progress"] == pytest.approx(-1 / 3)


def test_step_when_one_answer_guesses_on_then_only_its_last_queens_count() -> None:
    state = ENV.step(ENV.reset(TASK), "planner", "place a2 c1").state
    guessed = ENV.step(state, "planner", "place d1 d2 d3 d4")
    assert (guessed.team_reward, guessed.success) == (0.0, False)
    assert ENV.step(state, "planner", "place d1 d2 d4 d3").success


def test_step_when_a_given_is_moved_or_a_square_is_closed_or_off_the_board_then_is_refused() -> (
    None
):
    done = ENV.step(ENV.reset(TASK), "planner", "place b1 a3 a5 e1")
    assert done.info["refused"] == [1, 2, 3, 4]
    assert done.info["distance"] == 3
    # Without the given queen this would be the other solution.
    other = ENV.step(ENV.reset(TASK), "planner", "place a3 b1 c4 d2")
    assert not other.success
    assert other.info["refused"] == [1, 2]


@pytest.mark.parametrize(
    ("size", "num_solutions"), [(4, 2), (5, 10), (6, 4), (7, 40), (8, 92), (9, 352), (10, 724)]
)
def test_all_solutions_of_each_size_then_are_as_many_as_is_known(
    size: int, num_solutions: int
) -> None:
    boards = [board_of(size, solution) for solution in all_solutions(size)]
    assert len(set(boards)) == num_solutions
    assert all(is_solved(board) for board in boards)
    assert [bits(board) for board in boards] == list(all_solutions(size))


def test_all_solutions_on_five_by_five_then_are_those_of_plain_counting() -> None:
    assert {board_of(5, solution) for solution in all_solutions(5)} == _by_plain_counting()


def test_attacked_on_each_line_then_names_both_queens() -> None:
    assert attacked("a.a.") == [(0, 0), (2, 0)]
    assert attacked("ab..") == [(0, 0), (1, 1)]
    assert attacked(".d.b") == [(1, 3), (3, 1)]
    assert attacked("bdac") == []


@settings(max_examples=60)
@given(st.integers(0, 50), st.text("abcde.", min_size=5, max_size=5))
def test_distance_of_any_board_then_is_the_least_number_of_files_to_change(
    index: int, board: str
) -> None:
    family = EightQueens(EightQueensParams(size=5, given=1, closed=4))
    instance = family.taskset().task("train", index).payload.decode()
    what = read_instance(instance)
    board = "".join(g if g != NONE else b for g, b in zip(what.given, board, strict=True))
    fitting = [
        one
        for one in _by_plain_counting()
        if all(g in (NONE, row) for g, row in zip(what.given, one, strict=True))
        and not set(queens(one)) & what.closed
    ]
    least = min(sum(a != b for a, b in zip(board, one, strict=True)) for one in fitting)
    assert PUZZLE.distance(instance, board) == least


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("params", [(8, 2, 4), (8, 0, 6), (4, 0, 5), (5, 1, 2), (8, 3, 0)])
def test_task_whatever_the_seed_then_is_its_splits_and_can_be_completed(
    split: Split, seed: int, params: tuple[int, int, int]
) -> None:
    size, given, closed = params
    family = EightQueens(EightQueensParams(seed=seed, size=size, given=given, closed=closed))
    for index in range(30):
        instance = read_instance(family.taskset().task(split, index).payload.decode())
        assert split_of(instance) == split
        assert (len(queens(instance.given)), len(instance.closed)) == (given, closed)
        assert completions(instance)


@given(st.integers(0, 300))
@settings(max_examples=40)
def test_split_of_when_a_board_is_turned_or_mirrored_then_is_the_same(index: int) -> None:
    instance = read_instance(FAMILY.taskset().task("test", index).payload.decode())
    twins = set(symmetries(instance))
    assert instance in twins
    assert {split_of(twin) for twin in twins} == {"test"}
    assert {len(completions(twin)) for twin in twins} == {len(completions(instance))}


def test_read_instance_of_write_instance_then_is_the_same() -> None:
    text = FAMILY.taskset().task("train", 0).payload.decode()
    assert write_instance(read_instance(text)) == text


@pytest.mark.parametrize(
    ("params", "hint"),
    [
        ({"given": 8}, "given must be below size"),
        ({"size": 4, "given": 3, "closed": 1}, "closed must be at most 0"),
        ({"given": 0, "closed": 0}, f"keep {MIN_BOARDS} apart"),
        ({"size": 6, "given": 1, "closed": 0}, "raise closed"),
    ],
)
def test_params_when_boards_are_too_few_or_impossible_then_are_refused(
    params: dict[str, int], hint: str
) -> None:
    with pytest.raises(ValidationError, match=hint):
        EightQueensParams.model_validate(params)


@pytest.mark.parametrize(
    ("text", "actions", "is_well_formed"),
    [
        ("place a2 c1", ("a2", "c1"), True),
        ("Rows 2 and 1 are free.\nplace: [a2, c1]", ("a2", "c1"), True),
        ("place l12", ("l12",), True),
        ("**Place:** a2, c1", ("a2", "c1"), True),
        ("place: `a2 c1`", ("a2", "c1"), True),
        ("**Place:** **a2**, **c1**", ("a2", "c1"), True),
        ("place: a2, c1\n\nI place `a2` first.", ("a2", "c1"), False),
        ("place a2\nplace c1", ("c1",), True),
        ("place a2 [2, 4, 1, 3]", ("a2",), False),
        ("[2, 4, 1, 3]", (), False),
        ("place 2 4 1 3", (), False),
        ("place a2 b2 c2 d2 e2", ("a2", "b2", "c2", "d2"), False),
        ("try a2", (), False),
    ],
)
def test_read_answer_on_each_shape_then_reads_squares_and_form(
    text: str, actions: tuple[str, ...], is_well_formed: bool
) -> None:
    answer = read_answer("place", EightQueensPuzzle.item, text, 4)
    assert (answer.actions, answer.is_well_formed) == (actions, is_well_formed)


def test_random_play_when_counted_then_solves_as_often_as_the_solutions_are_many() -> None:
    family = EightQueens(EightQueensParams(size=5, given=1, closed=4, max_actions=4))
    env, rng, num_plays = family.environment(), Random(0), 3000
    task = family.taskset().task("train", 0)
    what = read_instance(task.payload.decode())
    open_squares = [
        sum((file, row) not in what.closed for row in range(5))
        for file, given in enumerate(what.given)
        if given == NONE
    ]
    chance = len(completions(what)) / math.prod(open_squares)
    state = env.reset(task)
    solved = sum(
        env.step(state, "planner", family.random_action(state, "planner", rng)).success
        for _ in range(num_plays)
    )
    assert solved > 0
    assert solved / num_plays == pytest.approx(chance, abs=4 * math.sqrt(chance / num_plays))


@cache
def _by_plain_counting() -> frozenset[str]:
    boards = ("".join(rows) for rows in product("abcde", repeat=5))
    return frozenset(board for board in boards if is_solved(board))
