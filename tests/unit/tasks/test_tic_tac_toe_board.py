"""The rules of Tic-Tac-Toe, perfect play, and openings that splits never share."""

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS
from troupe_tasks.tic_tac_toe import TicTacToe, TicTacToeParams
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe.openings import openings


@cache
def _chances(board: str, x_is_perfect: bool = False) -> tuple[Fraction, Fraction, Fraction]:
    """Exact chances of (x wins, o wins, draw); players are uniformly random, or x is perfect."""
    if boards.is_over(board):
        won = boards.winner(board)
        return Fraction(won == "x"), Fraction(won == "o"), Fraction(won is None)
    cells = boards.free(board)
    if x_is_perfect and boards.to_move(board) == "x":
        cells = boards.best_cells(board)
    parts = [_chances(boards.placed(board, cell), x_is_perfect) for cell in cells]
    x, o, draw = (sum(column, Fraction(0)) / len(cells) for column in zip(*parts, strict=True))
    return x, o, draw


def test_random_games_when_enumerated_then_x_wins_585_o_288_and_127_of_1000_are_drawn() -> None:
    x, o, draw = _chances(boards.FIRST_BOARD)
    assert (x, o, draw) == (Fraction(737, 1260), Fraction(121, 420), Fraction(8, 63))
    assert (round(float(x), 3), round(float(o), 3), round(float(draw), 3)) == (0.585, 0.288, 0.127)


def test_perfect_x_when_o_is_random_then_o_never_wins() -> None:
    x, o, _ = _chances(boards.FIRST_BOARD, x_is_perfect=True)
    assert o == 0
    assert x > Fraction(1, 2)


def test_value_of_the_first_board_then_is_a_draw() -> None:
    assert boards.value(boards.FIRST_BOARD) == 0


@pytest.mark.parametrize("num_marks", range(7))
def test_perfect_games_from_every_opening_then_end_at_the_openings_value(num_marks: int) -> None:
    pending = set(boards.after(num_marks))
    values = {board: {boards.value(board)} for board in pending}
    while pending:
        board = pending.pop()
        for cell in boards.best_cells(board):
            after = boards.placed(board, cell)
            assert {boards.value(after)} == values[board]
            if boards.is_over(after):
                won = boards.winner(after)
                assert boards.value(after) == (won == "x") - (won == "o")
            elif after not in values:
                values[after] = values[board]
                pending.add(after)


@pytest.mark.parametrize(
    ("board", "cells"),
    [
        ("xx.oo....", ["c1"]),  # x wins at once; o threatens c2
        ("xx..o....", ["c1"]),  # o must block
        ("x...o...x", ["b1", "a2", "c2", "b3"]),  # o: a corner would lose to the fork
        ("....x....", ["a1", "c1", "a3", "c3"]),  # o: an edge loses
    ],
)
def test_best_cells_on_known_boards_then_are_the_known_ones(board: str, cells: list[str]) -> None:
    assert [boards.NAMES[cell] for cell in boards.best_cells(board)] == cells


def test_after_when_counted_then_has_the_known_numbers_of_positions() -> None:
    assert [len(boards.after(n)) for n in range(5)] == [1, 9, 72, 252, 756]
    classes = [len({boards.canonical(b) for b in boards.after(n)}) for n in range(5)]
    assert classes == [1, 3, 12, 38, 108]


@given(st.sampled_from(boards.after(4)))
def test_canonical_when_a_board_is_turned_or_mirrored_then_stays(board: str) -> None:
    turned = "".join(board[cell] for cell in (2, 5, 8, 1, 4, 7, 0, 3, 6))
    mirrored = board[6:] + board[3:6] + board[:3]
    assert boards.canonical(board) == boards.canonical(turned) == boards.canonical(mirrored)
    assert abs(boards.value(turned)) == abs(boards.value(board))


@pytest.mark.parametrize("num_marks", range(1, 7))
def test_openings_then_splits_are_not_empty_and_share_no_board_turned_or_mirrored(
    num_marks: int,
) -> None:
    classes = {s: {boards.canonical(b) for b in openings(num_marks, s)} for s in SPLITS}
    assert all(classes.values())
    assert classes["train"].isdisjoint(classes["validation"] | classes["test"])
    assert classes["validation"].isdisjoint(classes["test"])
    assert sum(len(openings(num_marks, s)) for s in SPLITS) == len(boards.after(num_marks))


def test_tasks_then_are_each_opening_with_each_seat_to_move_first() -> None:
    family = TicTacToe(TicTacToeParams(opening_marks=3))
    env, tasks = family.environment(), family.taskset()
    movers: dict[str, set[str]] = {}
    for index in range(tasks.size("test") or 0):
        state = env.reset(tasks.task("test", index))
        seat = next(s for s in family.agents if env.observe(state, s))
        movers.setdefault(env.observe(state, seat)[0].content, set()).add(seat)
    assert len(movers) == len(openings(3, "test"))
    assert all(seats == {"player_1", "player_2"} for seats in movers.values())


def test_tasks_when_player_1_is_first_then_it_always_is() -> None:
    family = TicTacToe(TicTacToeParams(opening_marks=3, first="player_1"))
    env, tasks = family.environment(), family.taskset()
    size = tasks.size("test") or 0
    assert size == len(openings(3, "test"))
    for index in range(size):
        assert env.observe(env.reset(tasks.task("test", index)), "player_1")


@settings(max_examples=20)
@given(st.integers(0, 100), st.integers(0, 20))
def test_task_when_asked_twice_then_is_equal_whatever_the_seed(index: int, seed: int) -> None:
    tasks = TicTacToe(TicTacToeParams(seed=seed)).taskset()
    assert tasks.task("train", index) == tasks.task("train", index)


def test_task_when_out_of_range_then_says_how_many_there_are() -> None:
    tasks = TicTacToe(TicTacToeParams(opening_marks=1)).taskset()
    size = tasks.size("test")
    with pytest.raises(InvalidArgumentError, match=f"has {size} test tasks"):
        tasks.task("test", size or 0)
