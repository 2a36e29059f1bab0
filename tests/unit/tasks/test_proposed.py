"""Proposed puzzles: the arithmetic, what is a puzzle, and what each seat is paid."""

import itertools
import json
import operator
from random import Random
from typing import Any

import pytest

from troupe.algorithms.gigpo import GiGpo, GiGpoParams
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec
from troupe.tasks.family import Task, Transition
from troupe.tasks.splits import split_of_key
from troupe_tasks.proposed.countdown import solution_of, targets_of, value_of
from troupe_tasks.proposed.environment import ProposedEnvironment, difficulty
from troupe_tasks.proposed.family import Proposed, ProposedParams
from troupe_tasks.proposed.state import State, encode_state

POOL = (2, 3, 3, 5, 7, 9)


def _env(**params: Any) -> ProposedEnvironment:
    return Proposed(ProposedParams(**params)).environment()


def _start(attempts: int = 4) -> bytes:
    return encode_state(State(POOL, attempts))


def _played(answers: list[str], attempts: int = 4) -> list[Transition]:
    env, state = _env(), _start(attempts)
    found: list[Transition] = []
    for answer in answers:
        agent = "solver" if json.loads(state)["numbers"] else "proposer"
        assert env.observe(state, agent)
        found.append(env.step(state, agent, answer))
        state = found[-1].state
    return found


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("( 7 - 2 ) * 3", 15),
        ("7-2*3", 1),
        ("3*(7-2)", 15),
        ("2 - 3 - 7", -8),
        ("(((2)))+3*7", 23),
        ("7 - 2", None),
        ("7 - 2 * 3 * 3", None),
        ("7 2 3", None),
        ("7 - - 2 * 3", None),
        ("(7 - 2 * 3", None),
        ("7 - 2) * 3", None),
        ("()7 - 2 * 3", None),
        ("-7 + 2 * 3", None),
        ("2 ** 3 + 7", None),
        ("72 - 3", None),
        ("", None),
        ("(" * 60 + "7-2*3" + ")" * 60, None),
    ],
)
def test_expression_when_it_is_read_then_is_worth_what_arithmetic_says(
    expression: str, value: int | None
) -> None:
    assert value_of(expression, (2, 3, 7)) == value


def test_targets_when_all_are_tried_by_brute_force_then_are_the_same() -> None:
    """Both shapes of an expression of three numbers, every order and operator, in Python."""
    numbers = (2, 5, 7)
    reached: set[int] = set()
    for a, b, c in itertools.permutations(numbers):
        for one, other in itertools.product([operator.add, operator.sub, operator.mul], repeat=2):
            reached |= {other(one(a, b), c), one(a, other(b, c))}
    assert targets_of(numbers, 999) == sorted(n for n in reached if 1 <= n <= 999)
    for target in targets_of(numbers, 999):
        assert value_of(solution_of(numbers, target) or "", numbers) == target
    assert solution_of(numbers, 998) is None


@pytest.mark.parametrize(
    ("right", "pay"),
    [
        ([False] * 4, 0.0),
        ([True, False, False, False], 0.75),
        ([True, True, True, False], 0.25),
        ([True] * 4, 0.0),
        ([True], 0.0),
    ],
)
def test_difficulty_when_worked_by_hand_then_is_one_less_the_share_of_right_attempts(
    right: list[bool], pay: float
) -> None:
    assert difficulty(right) == pay


def test_episode_when_one_attempt_of_four_is_right_then_pays_each_seat_by_hand() -> None:
    wrong = "make 2 + 3 + 7"
    posed, *tried = _played(["I pose\npose 7 2 3 target 15", wrong, "make (7-2)*3", wrong, "no"])
    assert posed.local_rewards == {"valid": 1.0}
    assert [t.local_rewards["right"] for t in tried] == [0.0, 1.0, 0.0, 0.0]
    assert [t.local_rewards["format"] for t in tried] == [0.0, 0.0, 0.0, -1.0]
    assert [t.local_rewards.get("proposer/difficulty") for t in tried] == [None, None, None, 0.75]
    assert [t.done for t in tried] == [False, False, False, True]
    assert tried[-1].success
    assert {t.team_reward for t in (posed, *tried)} == {0.0}


@pytest.mark.parametrize(
    ("puzzle", "failure"),
    [
        ("pose 2 3 7 target 998", "size"),
        ("pose 2 3 target 6", "size"),
        ("pose 2 2 7 target 11", "pool"),
        ("pose 2 3 8 target 13", "pool"),
        ("pose 2 5 7 target 97", "unsolvable"),
        ("2 3 7", "format"),
        ("pose 2 3 7 target 15 since ( 7 - 2 ) * 3", "format"),
        ("", "format"),
    ],
)
def test_puzzle_when_it_is_none_then_the_episode_ends_unpaid(puzzle: str, failure: str) -> None:
    env = _env()
    after = env.step(_start(), "proposer", puzzle)
    assert (after.done, after.success, after.info["failure"]) == (True, False, failure)
    assert after.local_rewards == {"valid": 0.0}
    assert env.observe(after.state, "solver") == ()
    assert env.step(after.state, "solver", "make 1").local_rewards == {}


def test_prompt_when_the_proposer_says_more_or_orders_numbers_then_the_solver_sees_none_of_it() -> (
    None
):
    env = _env()
    plain = env.step(_start(), "proposer", "pose 2 3 7 target 15")
    coded = env.step(_start(), "proposer", "the way: ( 7 - 2 ) * 3\npose 7 3 2 target 15")
    assert env.observe(plain.state, "solver") == env.observe(coded.state, "solver")
    [message] = env.observe(coded.state, "solver")
    assert message.text == "numbers 2 3 7 target 15 solver"
    second = env.step(coded.state, "solver", "make 2 + 3 + 7")
    assert env.observe(second.state, "solver") == env.observe(coded.state, "solver")


def test_held_out_task_when_it_begins_then_is_a_puzzle_that_training_can_not_pose() -> None:
    family = Proposed(ProposedParams())
    env, taskset = family.environment(), family.taskset()
    for index in range(40):
        state = json.loads(taskset.task("validation", index).payload)
        assert state["attempts"] == 1 and not state["pool"]
        key = " ".join(map(str, state["numbers"]))
        assert split_of_key(key) == "validation"
        pool = json.loads(taskset.task("train", index).payload)["pool"]
        posable = {" ".join(map(str, sorted(few))) for few in itertools.combinations(pool, 3)}
        assert {split_of_key(each) for each in posable} == {"train"}
    task: Task = taskset.task("validation", 0)
    start = env.reset(task)
    assert env.observe(start, "proposer") == ()
    done = env.step(start, "solver", family.demonstrate(start, "solver", Random(0)))
    assert (done.done, done.success) == (True, True)
    assert done.local_rewards == {"right": 1.0, "format": 0.0}


def test_solver_when_it_gives_in_for_the_proposer_then_the_team_earns_less() -> None:
    right, none = "make (7-2)*3", "make"
    posed = "pose 2 3 7 target 15"

    def pay(answers: list[str]) -> float:
        weights = Proposed.local_terms["proposer"] | Proposed.local_terms["solver"]
        terms = [t.local_rewards.items() for t in _played([posed, *answers])]
        return sum(weights[n.rpartition("/")[2]] * v for term in terms for n, v in term)

    assert pay([right] * 4) == pytest.approx(4.1)
    assert pay([right, none, none, none]) == pytest.approx(1.0 + 0.85 - 0.3)


def test_gigpo_when_attempts_have_one_prompt_then_compares_them_with_each_other() -> None:
    """Worked by hand, unscaled: two puzzles, two attempts each; right are 1 of 2 and 2 of 2. At
    equal prompts 0.5, -0.5 and 0, 0; over episodes -0.5 and 0.5."""
    algorithm = GiGpo(AlgorithmSpec(kind="gigpo", scale="none"), GiGpoParams(gamma=0.0))
    acts = [
        Sample(i, reward, 3, False, trajectory=i // 2, turn=i % 2, prompt_digest=str(i // 2))
        for i, reward in enumerate([1.0, 0.0, 1.0, 1.0])
    ]
    found = algorithm.advantages(GroupOutcome("g", "solver", 0, acts))
    assert found == [0.0, -1.0, 0.5, 0.5]
