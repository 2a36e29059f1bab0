"""The tool agent's search: what it finds, what it refuses, and that it changes nothing else."""

from random import Random

import pytest

from troupe_tasks.plan_path import PlanPath, PlanPathParams, text
from troupe_tasks.plan_path import state as states
from troupe_tasks.plan_path.grid import Grid, Instance, way

GRID = Grid(("..#.", ".#..", "....", "#..."))
FAMILY = PlanPath(PlanPathParams(size=4, max_actions=3, search_radius=5))
ENV = FAMILY.environment()


def _start() -> bytes:
    """At a1; the goal d1 is seven moves away, round the walls b2 and c1."""
    payload = states.encode_instance(Instance(GRID, (0, 0), (0, 3)))
    return states.encode_state(states.first_state(payload))


def _tool(action: str) -> tuple[str, dict[str, float]]:
    done = ENV.step(_start(), "tool", action)
    return ENV.observe(done.state, "planner")[0].content, dict(done.local_rewards)


def test_way_when_several_are_shortest_then_the_first_in_the_order_of_moves() -> None:
    # b3 lies two down and one right; the walls leave one way. c4 has two ways from b3: D R, R D.
    assert way(GRID, (0, 0), "b3", 5) == "DDR"
    assert way(GRID, (0, 0), "c4", 5) == "DDRDR"


@pytest.mark.parametrize("target", ["b2", "c1", "e1", "a9", "d1"])
def test_way_when_the_cell_is_a_wall_off_the_map_or_too_far_then_none(target: str) -> None:
    assert way(GRID, (0, 0), target, 5) is None


def test_search_when_the_cell_is_near_then_the_planner_sees_the_first_moves_of_the_way() -> None:
    seen, rewards = _tool("search c4")
    assert seen.endswith("tried D D R ends b3 clear planner")
    # d1 is 7 moves from a1 and 4 from b3.
    assert rewards == {"format": 1.0, "legal": 1.0, "progress": pytest.approx(3 / 7)}


def test_search_when_nothing_is_found_then_it_is_well_formed_and_shows_nothing() -> None:
    seen, rewards = _tool("search d1")
    assert seen.endswith("tried nothing planner")
    assert rewards == {"format": 1.0, "legal": 0.0, "progress": 0.0}


@pytest.mark.parametrize("action", ["search c4 then simulate R", "search", "search the goal"])
def test_search_when_it_is_not_the_last_call_or_names_no_cell_then_it_is_none(action: str) -> None:
    assert text.read_search(action) is None


def test_search_when_the_parameters_have_none_then_the_word_means_nothing() -> None:
    env = PlanPath(PlanPathParams(size=4, max_actions=3)).environment()
    done = env.step(_start(), "tool", "search c4")
    assert done.local_rewards["format"] == 0.0
    assert env.observe(done.state, "planner")[0].content.endswith("tried nothing planner")


def test_vocabulary_when_there_is_no_search_then_it_is_that_of_before() -> None:
    plain = PlanPath(PlanPathParams(size=4)).vocabulary()
    assert "search" not in plain
    assert set(FAMILY.vocabulary()) - set(plain) == {"search"}


def test_demonstrations_when_the_goal_is_far_then_search_a_cell_within_reach() -> None:
    family = PlanPath(PlanPathParams(size=10, max_actions=6, search_radius=6))
    env, tasks = family.environment(), family.taskset()
    searched = 0
    for index in range(60):
        state = env.reset(tasks.task("train", index))
        action = family.demonstrate(state, "tool", Random(index))
        if text.read_search(action):
            searched += 1
            assert env.step(state, "tool", action).local_rewards["progress"] > 0
    assert 15 < searched < 45
