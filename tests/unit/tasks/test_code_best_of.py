"""Best of several programs: the execution matrix by hand, and what the environment pays."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from code_world import ADD, ProcessSandbox

from troupe.tasks.family import Transition
from troupe_tasks.code import text
from troupe_tasks.code.best_of import BestOfEnvironment, BestOfParams, CodeBestOf
from troupe_tasks.code.matrix import Cell, Program, chosen, worth_of_tests
from troupe_tasks.code.problem import write_problems

P: Cell = "passed"
F: Cell = "failed"
L: Cell = "late"
RIGHT = Program("r", 1.0, is_plausible=True)
WRONG = Program("w", 0.5, is_plausible=True)
CLUMSY = Program("c", 0.0, is_plausible=False)


@pytest.mark.parametrize(
    ("programs", "cells", "worth"),
    [
        # right, right, wrong, wrong: passed by all right ones and failed by half of the wrong
        ([RIGHT, RIGHT, WRONG, WRONG], [[P], [P], [F], [P]], [0.5]),
        ([RIGHT, RIGHT, WRONG, WRONG], [[P], [P], [F], [F]], [1.0]),
        ([RIGHT, RIGHT, WRONG, WRONG], [[P], [P], [P], [P]], [0.0]),
        # a right one fails it: minus the share of wrong ones that pass
        ([RIGHT, RIGHT, WRONG, WRONG], [[P], [F], [F], [P]], [-0.5]),
        ([RIGHT, RIGHT, WRONG, WRONG], [[F], [F], [P], [P]], [-1.0]),
        # nobody right, or nothing to tell apart
        ([WRONG, WRONG], [[F], [P]], [0.0]),
        ([RIGHT, RIGHT], [[P], [P]], [0.0]),
        # a program that fails the examples is told apart without a test
        ([RIGHT, CLUMSY], [[P], [F]], [0.0]),
        ([RIGHT, CLUMSY, WRONG], [[P], [F], [P]], [0.0]),
        # late is not caught, and a test that makes the right one late is not passed
        ([RIGHT, WRONG], [[P], [L]], [0.0]),
        ([RIGHT, WRONG], [[L], [P]], [-1.0]),
        ([RIGHT, WRONG], [[P, F], [F, P]], [1.0, -1.0]),
    ],
)
def test_worth_when_worked_by_hand_then_is_the_published_rule_over_plausible_programs(
    programs: list[Program], cells: list[list[Cell]], worth: list[float]
) -> None:
    assert worth_of_tests(programs, cells) == worth


def test_choice_when_tests_are_equal_then_is_the_first_program() -> None:
    assert chosen([[P, F], [P, P], [P, P]]) == 1
    assert chosen([[], [], []]) == 0


SUM = "a, b = map(int, input().split())\nprint(a + b)"
NO_MINUS = "a, b = map(int, input().split())\nprint(abs(a) + abs(b))"
SILENT = "print()"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> BestOfEnvironment:
    path = tmp_path_factory.mktemp("problems") / "train.jsonl"
    write_problems(path, [ADD])
    return _family(path).environment_in(ProcessSandbox())


def _family(path: Path) -> CodeBestOf:
    return CodeBestOf(BestOfParams(data={"train": path}, programs=3))


def _start(env: BestOfEnvironment, folder: Path) -> bytes:
    path = folder / "train.jsonl"
    write_problems(path, [ADD])
    return env.reset(_family(path).taskset().task("train", 0))


def _played(env: BestOfEnvironment, state: bytes, programs: list[str], tests: Any) -> Transition:
    for program in programs:
        assert env.observe(state, "tester") == ()
        transition = env.step(state, "coder", text.program_answer(program))
        assert (transition.done, transition.team_reward) == (False, 0.0)
        state = transition.state
    assert env.observe(state, "coder") == ()
    return env.step(state, "tester", text.tests_answer(ADD, tests))


def test_episode_when_the_test_tells_them_apart_then_the_right_program_is_chosen_and_both_are_paid(
    env: BestOfEnvironment, tmp_path: Path
) -> None:
    start = _start(env, tmp_path)
    end = _played(env, start, [NO_MINUS, SUM, SILENT], [("-8 3\n", "-5\n"), ("4 4\n", "8\n")])
    assert end.local_rewards == {"format": 1.0, "tells": 0.5}
    assert (end.team_reward, end.done, end.success) == (1.0, True, True)
    assert end.info["worth"] == [1.0, 0.0]
    blind = _played(env, start, [NO_MINUS, SUM, SILENT], [("4 4\n", "8\n")])
    assert (blind.team_reward, blind.success) == (0.75, False)
    assert blind.local_rewards == {"format": 1.0, "tells": 0.0}
    false = _played(env, start, [NO_MINUS, SUM, SILENT], [("-8 3\n", "11\n")])
    assert false.local_rewards["tells"] == -1.0
    assert (false.team_reward, false.success) == (0.75, False)


@pytest.mark.parametrize("copied", [[("1 2\n", "3\n")], [("+1 02\n", "3\n")], [("1 2 9\n", "3\n")]])
def test_test_when_it_repeats_an_example_in_any_spelling_then_earns_nothing(
    copied: Any, env: BestOfEnvironment, tmp_path: Path
) -> None:
    end = _played(env, _start(env, tmp_path), [NO_MINUS, SUM, SILENT], copied)
    assert end.local_rewards["tells"] == 0.0


def test_answers_when_they_are_empty_then_the_first_program_is_taken_and_nothing_is_earned(
    env: BestOfEnvironment, tmp_path: Path
) -> None:
    state = _start(env, tmp_path)
    prompts = []
    for answer in ("", text.program_answer(SUM), "no program"):
        prompts.append(env.observe(state, "coder"))
        state = env.step(state, "coder", answer).state
    assert prompts[0] == prompts[1] == prompts[2]
    end = env.step(state, "tester", "none")
    assert end.local_rewards == {"format": 0.0, "tells": 0.0}
    assert (end.team_reward, end.success, end.done) == (0.0, False, True)
    after = env.step(end.state, "tester", "none")
    assert (after.done, after.team_reward, after.local_rewards) == (True, 0.0, {})


def test_scripts_when_they_play_the_built_in_problems_then_the_tests_find_the_reference() -> None:
    family = CodeBestOf(BestOfParams(programs=2, max_hidden_tests=4))
    env = family.environment_in(ProcessSandbox())
    rng, won = Random(0), 0
    for index in range(4):
        state = env.reset(family.taskset().task("train", index))
        assert len(json.loads(state)["programs"]) == 0
        for agent in ("coder", "coder", "tester"):
            last = env.step(state, agent, family.demonstrate(state, agent, rng))
            state = last.state
        won += last.success
    assert won >= 3
