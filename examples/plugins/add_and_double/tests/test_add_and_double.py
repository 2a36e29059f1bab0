"""The rules by hand, and Troupe's conformance kit."""

from pathlib import Path
from random import Random

import pytest
from troupe.conformance import CheckLimits, Reference, check_family
from troupe.tasks.family import Task

from add_and_double import AddAndDouble
from add_and_double.family import Params
from add_and_double.state import State, encode, num_left

FAMILY = AddAndDouble(Params())
ENV = FAMILY.environment()
# 5 -> add 5 -> 10 -> double -> 20
TASK = Task("t", "train", 0, encode(State(5, 20)))


def test_step_when_the_target_is_met_then_pays_once_and_ends() -> None:
    added = ENV.step(ENV.reset(TASK), "adder", "add 5")
    assert (added.team_reward, added.done) == (0.0, False)
    doubled = ENV.step(added.state, "doubler", "double")
    assert (doubled.team_reward, doubled.done, doubled.success) == (1.0, True, True)
    assert ENV.step(doubled.state, "adder", "add 1").team_reward == 0.0


def test_step_when_the_number_goes_over_then_the_episode_is_lost() -> None:
    lost = ENV.step(encode(State(15, 20)), "doubler", "double")
    assert (lost.team_reward, lost.done, lost.success) == (0.0, True, False)


UNREADABLE = ["", "add 0", "add 10", "add 5\nor add 6?", "double", "add \u0665"]


@pytest.mark.parametrize("said", UNREADABLE)
def test_step_when_the_answer_cannot_be_read_then_nothing_changes(said: str) -> None:
    state = ENV.reset(TASK)
    assert ENV.step(state, "adder", said).state == state


def test_num_left_on_a_case_worked_by_hand_then_is_the_fewest() -> None:
    assert num_left(5, 20, "adder") == 2
    assert num_left(5, 20, "doubler") == 3
    assert num_left(21, 20, "adder") is None


@pytest.mark.parametrize("index", range(20))
def test_demonstrate_when_both_follow_it_then_the_target_is_met(index: int) -> None:
    state, rng = ENV.reset(FAMILY.taskset().task("train", index)), Random(index)
    for number in range(32):
        agent = FAMILY.agents[number % 2]
        done = ENV.step(state, agent, FAMILY.demonstrate(state, agent, rng))
        state = done.state
        if done.done:
            break
    assert done.success


def test_family_when_the_conformance_kit_tries_to_break_it_then_holds() -> None:
    source = str(Path(__file__).parents[1] / "src")
    where = "add_and_double.family:AddAndDouble"
    reference = Reference(where, import_paths=(source,))
    report = check_family(FAMILY, reference=reference, limits=CheckLimits(seconds=1))
    assert report.is_ok, report.text()
