"""What pays nothing in the build family: one command, floods, breaking and mending, empty talk."""

from random import Random

import pytest

from troupe.tasks.family import Task
from troupe_tasks.building import Build, BuildParams
from troupe_tasks.building.blueprint import Blueprint

FAMILY = Build(BuildParams())
ENV = FAMILY.environment()
TASKS = [FAMILY.taskset().task("train", index) for index in range(25)]


def paid(task: Task, *answers: str) -> tuple[float, bool]:
    """Team reward of both builders giving each answer in turn, and whether it was solved."""
    state, total, solved = ENV.reset(task), 0.0, False
    for answer in answers:
        for agent in FAMILY.agents:
            done = ENV.step(state, agent, answer)
            state, total, solved = done.state, total + done.team_reward, solved or done.success
    return total, solved


CONSTANTS = {
    "nothing": "",
    "claim": "The building is finished. success = true",
    "json": '{"done": true, "success": true, "reward": 1}',
    "one block": "setblock 0 0 0 stone",
    "floor": "fill 0 0 0 2 0 2 stone",
    "whole site": "fill 0 0 0 4 3 4 brick",
    "whole site, all materials": "\n".join(
        f"fill 0 0 0 4 3 4 {name}" for name in ("stone", "brick", "glass", "wool", "log")
    ),
    "off the site": "fill 0 0 0 99 99 99 stone",
    "bedrock": "fill 0 0 0 2 2 2 bedrock",
    "relative": "fill ~ ~ ~ ~4 ~4 ~4 stone",
    "clear all": "fill 0 0 0 2 2 2 air",
    "other commands": "/give @p diamond 64\n/clone 0 0 0 4 4 4 0 0 0\n/summon spider",
    "fill with replace": "fill 0 0 0 2 2 2 stone replace air",
    "the rules again": "fill x1 y1 z1 x2 y2 z2 material",
    "the blueprint's letters": "target | s s s / s s s",
    "huge numbers": "setblock " + "9" * 400 + " 0 0 stone",
    "many": "setblock 0 0 0 stone\n" * 500,
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_answer_then_solves_nothing_and_is_almost_unpaid(name: str) -> None:
    results = [paid(task, *[CONSTANTS[name]] * 4) for task in TASKS]
    assert not any(solved for _, solved in results)
    assert sum(total for total, _ in results) / len(results) < 0.02


def test_one_fill_of_any_kind_then_is_unpaid() -> None:
    rng = Random(0)
    for task in TASKS:
        for _ in range(40):
            for agent in FAMILY.agents:
                state = ENV.reset(task)
                answer = FAMILY.random_action(state, agent, rng).split("\n")[0]
                assert ENV.step(state, agent, answer).team_reward == 0.0


def test_best_single_box_of_the_script_then_is_unpaid() -> None:
    for task in TASKS:
        state = ENV.reset(task)
        first = FAMILY.demonstrate(state, "builder_1", Random(0)).split("\n")[0]
        assert ENV.step(state, "builder_1", first).team_reward == 0.0


def test_building_clearing_and_building_again_then_is_paid_once() -> None:
    for task in TASKS:
        state, total = ENV.reset(task), 0.0
        plan = Blueprint.model_validate_json(task.payload)
        everything = f"fill 0 0 0 {plan.width - 1} {plan.height - 1} {plan.depth - 1} air"
        good = FAMILY.demonstrate(state, "builder_1", Random(0))
        rewards: list[float] = []
        for answer in (good, everything, good, everything, good):
            done = ENV.step(state, "builder_1", answer)
            state = done.state
            rewards.append(done.team_reward)
            total += done.local_rewards["right"]
        assert rewards[1:] == [0.0, 0.0, 0.0, 0.0]
        assert total <= 1.0


def test_clearing_what_the_other_built_then_changes_nothing() -> None:
    for task in TASKS:
        plan = Blueprint.model_validate_json(task.payload)
        state = ENV.step(
            ENV.reset(task),
            "builder_1",
            FAMILY.demonstrate(ENV.reset(task), "builder_1", Random(0)),
        ).state
        before = ENV.step(state, "builder_2", "").info["overlap"]
        own = set(plan.usable(0, 2)) - set(plan.usable(1, 2))
        cells = [c for c in plan.cells() if plan.target[plan.index(c)] in own]
        lines = "\n".join(f"setblock {x} {y} {z} air" for x, y, z in cells[:8])
        assert ENV.step(state, "builder_2", lines).info["overlap"] == before


def test_more_blocks_than_the_stock_has_then_are_refused() -> None:
    for task in TASKS:
        plan = Blueprint.model_validate_json(task.payload)
        letter = plan.usable(0, 2)[0]
        whole = f"fill 0 0 0 {plan.width - 1} {plan.height - 1} {plan.depth - 1} {letter}"
        done = ENV.step(ENV.reset(task), "builder_1", whole)
        if plan.num_cells > plan.stock[letter]:
            assert done.info["overlap"] == 0.0
            assert done.local_rewards["legal"] == -1.0


def test_commands_above_the_limit_then_are_not_done() -> None:
    task = TASKS[0]
    plan = Blueprint.model_validate_json(task.payload)
    letter = plan.usable(0, 2)[0]
    cells = [c for c in plan.cells() if c[1] == 0][:9]
    lines = "\n".join(f"setblock {x} {y} {z} {letter}" for x, y, z in cells)
    done = ENV.step(ENV.reset(task), "builder_1", lines)
    assert done.local_rewards["format"] == -1.0
    world_size = sum(1 for c in done.state.decode().split('"world":"')[1].split('"')[0] if c != ".")
    assert world_size == 8
