"""What a reward function may look like, told as it is loaded."""

from functools import partial, wraps
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError
from troupe.rewards.reward import JudgedTransition, load_reward
from troupe.tasks.family import Task

TASK = Task("t/train/3", "train", 3, b"payload")
DONE = JudgedTransition(b"s", 0.5, {}, False, False, {}, b"before", "tool", "go left")


async def waits(transition: JudgedTransition, task: Task) -> float:
    return 1.0


class Waits:
    async def __call__(self, transition: JudgedTransition, task: Task) -> float:
        return 1.0


def takes_one(transition: JudgedTransition) -> float:
    return 1.0


def takes_three(transition: JudgedTransition, task: Task, more: float) -> float:
    return more


def takes_any(*given: Any) -> float:
    return float(len(given))


def given_more(function: Any) -> Any:
    @wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments, 3.0)

    return wrapper


async_partial = partial(waits)
completed, wrapped = partial(takes_three, more=4.0), given_more(takes_three)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("waits", "it is an `async def`"),
        ("Waits", "it is an `async def`"),
        ("async_partial", "it is an `async def`"),
        ("takes_one", "too many positional arguments"),
        ("takes_three", "missing a required argument: 'more'"),
    ],
)
def test_reward_when_it_cannot_be_called_then_refused_as_it_is_loaded(
    function: str, problem: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load_reward(f"{__name__}:{function}", {})
    assert f"must be a plain `def (transition, task)`: {problem}" in caught.value.message
    assert caught.value.pointer == "/reward/kind"


@pytest.mark.parametrize(
    ("function", "value"), [("takes_any", 2.0), ("completed", 4.0), ("wrapped", 3.0)]
)
def test_reward_when_a_transition_and_a_task_are_enough_then_called(
    function: str, value: float
) -> None:
    assert load_reward(f"{__name__}:{function}", {})(DONE, TASK) == value
