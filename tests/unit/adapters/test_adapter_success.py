"""When an episode of an adapted environment counts as a success."""

import json
from collections.abc import Mapping

import pytest

from troupe.tasks.family import Task, Transition
from troupe_tasks.adapters.gymnasium import GymnasiumFamily, GymnasiumParams
from troupe_tasks.adapters.openenv import OpenEnvParams, OpenEnvWorld
from troupe_tasks.adapters.openenv_client import Served

TASK = Task("t", "train", 0, json.dumps({"seed": 0}).encode())
CARTPOLE = {"env": "CartPole-v1", "actions": ["left", "right"], "return_bound": 500.0}
BALANCED = ("left", "right", "right", "left")


def played(params: Mapping[str, object], *actions: str) -> Transition:
    """The last transition of an episode of ``actions``, in turn until it is over."""
    env = GymnasiumFamily(GymnasiumParams.model_validate(params)).environment()
    state = env.reset(TASK)
    for turn in range(600):
        step = env.step(state, "player", actions[turn % len(actions)])
        if step.done:
            return step
        assert not step.success
        state = step.state
    raise AssertionError("the episode does not end")


def test_success_when_every_step_is_paid_then_a_fall_is_none() -> None:
    fallen = played(CARTPOLE, "left")
    assert fallen.info["return"] > 5
    assert not fallen.success


def test_success_when_the_return_reaches_the_registered_threshold_then_it_is_one() -> None:
    solved = {**CARTPOLE, "env": "foreign_envs:EasyCartPole-v0"}
    assert played(solved, "left").success
    assert not played({**solved, "max_steps": 6}, "left").success


def test_success_when_a_goal_is_paid_then_it_is_one() -> None:
    lake = {
        "env": "FrozenLake-v1",
        "env_kwargs": {"is_slippery": False},
        "actions": ["left", "down", "right", "up"],
        "return_bound": 1.0,
    }
    assert played(lake, "down", "down", "right", "right", "down", "right").success
    assert not played(lake, "right", "down").success


@pytest.mark.parametrize(
    ("success_return", "is_success"), [(12.0, True), (13.0, False)], ids=["reached", "missed"]
)
@pytest.mark.parametrize("last", ["left", "no action"])
def test_success_when_max_steps_ends_the_episode_then_the_return_tells(
    success_return: float, is_success: bool, last: str
) -> None:
    steps = 13 if last == "no action" else 12
    params = {**CARTPOLE, "max_steps": steps, "success_return": success_return}
    ended = played(params, *(BALANCED * 3), last)
    assert (ended.info["return"], ended.success) == (12.0, is_success)


class Scripted:
    """An OpenEnv session whose answers are given."""

    def __init__(self, *rewards: float) -> None:
        self._rewards = list(rewards)

    def reset(self, request: object) -> Served:
        return Served({}, 0.0, is_done=False)

    def step(self, action: object) -> Served:
        reward = self._rewards.pop(0)
        return Served({}, reward, is_done=not self._rewards)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("rewards", "success_return", "successes"),
    [
        ((-0.1, 1.0), None, [False, True]),
        ((1.0, 1.0), None, [False, False]),
        ((0.0, 0.0), None, [False, False]),
        ((1.0, 0.0), 1.0, [True, True]),
        ((-1.0, 0.5), 0.0, [False, False]),
    ],
)
def test_openenv_success_when_no_return_is_named_then_only_a_paid_end_is_one(
    rewards: tuple[float, ...], success_return: float | None, successes: list[bool]
) -> None:
    params = OpenEnvParams.model_validate(
        {"url": "http://127.0.0.1:1", "return_bound": 2.0, "success_return": success_return}
    )
    world = OpenEnvWorld(params, Scripted(*rewards))
    assert not world.reset(0).is_success
    assert [world.act("player", {}).is_success for _ in rewards] == successes
