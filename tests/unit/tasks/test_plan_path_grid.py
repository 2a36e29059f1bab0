"""The maps of Plan-Path: true distances, disjoint splits, tasks that can be solved."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split
from troupe_tasks.plan_path import PlanPath, PlanPathParams
from troupe_tasks.plan_path.grid import (
    Grid,
    Instance,
    distances,
    draw,
    shortest_moves,
    split_of,
    walk,
)
from troupe_tasks.plan_path.state import first_state

# From the goal g, by hand: # 4 5 6
#                           2 3 # 7
#                           1 # 9 8
#                           g # . .
HAND_DRAWN = Grid(("#...", "..#.", ".#..", ".#.."))
GOAL = (3, 0)


def test_distances_on_a_hand_drawn_map_then_equal_the_hand_count() -> None:
    found = distances(HAND_DRAWN, GOAL)
    assert found == {
        (3, 0): 0,
        (2, 0): 1,
        (1, 0): 2,
        (1, 1): 3,
        (0, 1): 4,
        (0, 2): 5,
        (0, 3): 6,
        (1, 3): 7,
        (2, 3): 8,
        (2, 2): 9,
        (3, 3): 9,
        (3, 2): 10,
    }


def test_distances_when_a_cell_is_walled_off_then_it_is_absent() -> None:
    assert (0, 0) not in distances(Grid((".#", "#.")), (1, 1))


def test_walk_when_moves_are_illegal_then_stays_and_names_them() -> None:
    walked = walk(HAND_DRAWN, (3, 2), GOAL, "DLUU")
    assert walked.blocked == (1, 2, 4)
    assert walked.cells == ((3, 2), (2, 2))


def test_walk_when_the_goal_is_reached_then_later_moves_are_not_made() -> None:
    assert walk(HAND_DRAWN, (2, 0), GOAL, "DUU").end == GOAL


@given(st.integers(0, 2**32))
def test_shortest_moves_when_walked_then_reach_the_goal_in_the_true_distance(seed: int) -> None:
    instance = _drawn(seed, 7, 12)
    moves = shortest_moves(instance.grid, instance.start, instance.goal, Random(seed))
    walked = walk(instance.grid, instance.start, instance.goal, moves)
    assert walked.end == instance.goal
    assert len(moves) == distances(instance.grid, instance.goal)[instance.start]


@given(st.integers(0, 2**32), st.integers(0, 3), st.booleans())
def test_split_of_when_a_map_is_turned_or_mirrored_then_is_the_same(
    seed: int, quarter_turns: int, is_mirrored: bool
) -> None:
    grid = _drawn(seed, 5, 6).grid
    rows = grid.rows[::-1] if is_mirrored else grid.rows
    for _ in range(quarter_turns):
        rows = tuple("".join(column) for column in zip(*rows[::-1], strict=True))
    assert split_of(Grid(rows)) == split_of(grid)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", [0, 1])
def test_task_whatever_the_seed_then_its_map_belongs_to_its_split(split: Split, seed: int) -> None:
    taskset = PlanPath(PlanPathParams(size=5, seed=seed)).taskset()
    for index in range(100):
        state = first_state(taskset.task(split, index).payload)
        assert split_of(state.grid) == split


def test_split_of_over_many_maps_then_each_split_gets_its_share() -> None:
    splits = [split_of(_drawn(seed, 6, 8).grid) for seed in range(2000)]
    assert 0.75 < splits.count("train") / 2000 < 0.85
    assert 0.05 < splits.count("test") / 2000 < 0.15


@pytest.mark.parametrize("split", SPLITS)
def test_task_when_made_then_is_solvable_and_far_enough(split: Split) -> None:
    taskset = PlanPath(PlanPathParams(size=6, min_distance=4)).taskset()
    for index in range(50):
        assert first_state(taskset.task(split, index).payload).distance >= 4


def test_task_when_asked_in_any_order_then_is_the_same() -> None:
    params = PlanPathParams(size=6, seed=3)
    forward = [PlanPath(params).taskset().task("train", index) for index in range(20)]
    shared = PlanPath(params).taskset()
    assert [shared.task("train", index) for index in reversed(range(20))] == forward[::-1]


def test_task_when_the_seed_differs_then_differs() -> None:
    payloads = {
        PlanPath(PlanPathParams(seed=seed)).taskset().task("train", 0).payload for seed in range(10)
    }
    assert len(payloads) == 10


def test_task_when_the_parameters_cannot_be_met_then_says_so() -> None:
    taskset = PlanPath(PlanPathParams(size=4, min_distance=15)).taskset()
    with pytest.raises(InvalidArgumentError, match="min_distance"):
        taskset.task("train", 0)


def test_task_when_the_index_is_negative_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        PlanPath(PlanPathParams()).taskset().task("train", -1)


def _drawn(seed: int, size: int, num_walls: int) -> Instance:
    rng = Random(seed)
    while (instance := draw(rng, size, num_walls, 1)) is None:
        pass
    return instance
