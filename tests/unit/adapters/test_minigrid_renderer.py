"""What an agent of Minigrid sees, in words; and real Minigrid and BabyAI episodes."""

import json

import numpy as np
import pytest

from troupe.errors import InvalidArgumentError
from troupe.plugins import only_modules
from troupe.tasks.family import Task
from troupe_tasks.adapters.gymnasium import GymnasiumFamily, GymnasiumParams
from troupe_tasks.adapters.minigrid import read

ACTIONS = ["left", "right", "forward", "pickup", "drop", "toggle", "done"]
EMPTY, WALL = (1, 0, 0), (2, 5, 0)


def test_read_of_a_view_then_names_things_by_steps() -> None:
    image = np.tile(np.array(EMPTY, dtype=np.uint8), (7, 7, 1))
    image[3, 6] = (5, 4, 0)  # in the agent's hands
    image[3, 3] = (4, 4, 2)
    image[5, 6] = (6, 0, 0)
    image[2, 4] = (8, 1, 0)
    image[0, 0] = WALL
    text = read({"image": image, "direction": np.int64(3), "mission": "open the door"}, {})
    assert text == (
        "mission: open the door\nfacing north, holding yellow key, free ahead: 2\n"
        "you see: red ball 2 right, goal 2 ahead and 1 left, locked yellow door 3 ahead"
    )


def params(env: str) -> GymnasiumParams:
    return GymnasiumParams(
        env=env,
        actions=ACTIONS,
        renderer="troupe_tasks.adapters.minigrid:read",
        return_bound=1.0,
        max_steps=64,
    )


@pytest.mark.parametrize("env", ["MiniGrid-Empty-5x5-v0", "BabyAI-GoToRedBallGrey-v0"])
def test_minigrid_when_candidates_fork_then_equal_replays(env: str) -> None:
    pytest.importorskip("minigrid")
    live = GymnasiumFamily(params(f"minigrid:{env}")).environment()
    alone = GymnasiumFamily(
        params(f"minigrid:{env}").model_copy(update={"max_live": 0})
    ).environment()
    state = live.reset(Task("t", "train", 0, json.dumps({"seed": 3}).encode()))
    for action in ("right", "forward", "forward"):
        for other in ACTIONS:
            assert live.step(state, "player", other) == alone.step(state, "player", other)
        state = live.step(state, "player", action).state


def test_minigrid_when_the_corner_is_reached_then_is_solved() -> None:
    pytest.importorskip("minigrid")
    env = GymnasiumFamily(params("minigrid:MiniGrid-Empty-5x5-v0")).environment()
    state = env.reset(Task("t", "train", 0, json.dumps({"seed": 0}).encode()))
    for action in ("forward", "forward", "right", "forward"):
        state = env.step(state, "player", action).state
    last = env.step(state, "player", "forward")
    # Minigrid pays 1 - 0.9 * steps / max_steps.
    assert (last.done, last.success) == (True, True)
    assert 0.9 < last.team_reward < 1.0


def test_id_of_a_module_when_the_router_may_not_load_it_then_is_refused() -> None:
    with only_modules([]), pytest.raises(InvalidArgumentError, match="may not load"):
        GymnasiumFamily(params("minigrid:MiniGrid-Empty-5x5-v0"))
