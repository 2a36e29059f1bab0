"""The viewer draws what environments really note: rooms, digits, and the results of tests."""

import json
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from router_world import RouterWorld

from troupe import plugins

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.timeout(900)
_CODE = {
    "problem": "two-sum",
    "hidden_passed": 3,
    "hidden_tests": 4,
    "statuses": {"ok": 3, "time": 1},
}


def noted(name: str) -> dict[str, Any]:
    """What the family's own environment notes of one good action on a fresh task."""
    load: Any = plugins.load(plugins.TASKS, name)
    family = load(load.Params())
    environment = family.environment()
    state = environment.reset(family.taskset().task("test", 0))
    agent = family.agents[-1]
    action = family.demonstrate(state, agent, Random(0))
    return dict(environment.step(state, agent, action).info)


@pytest.fixture(scope="module")
def drawn(world: RouterWorld, hostile_job: str) -> Callable[[str, dict[str, Any]], str]:
    """Records one more episode, whose chosen candidate carries ``info``; answers its address."""
    path = world.runs_dir / hostile_job / "episodes.jsonl"
    first = path.read_text().splitlines()[0]

    def record(name: str, info: dict[str, Any]) -> str:
        line = json.loads(first)
        place = f"eval-00000-{sum(map(ord, name)):05d}"
        line["episode_id"] = f"{hostile_job}/{place.replace('00000-', '00000/')}"
        line["task_id"] = f"{name}/test/0"
        line["groups"] = line["groups"][:1]
        line["groups"][0]["candidates"][0] |= {"info": info, "is_chosen": True}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        address = f"/jobs/{hostile_job}/episodes/{place}"
        deadline = time.monotonic() + 20
        while world.client.get(f"/v1{address}").status_code == 404:
            assert time.monotonic() < deadline, f"{place} never came into the index"
            time.sleep(0.2)
        return address

    return record


def board(page: "Page", address: str) -> "Locator":
    page.goto(address)
    found = page.locator(".task-view")
    found.wait_for()
    return found


def test_sokoban_room_is_drawn_with_walls_boxes_goals_and_the_player(
    page: "Page", drawn: Callable[[str, dict[str, Any]], str]
) -> None:
    info = noted("sokoban")
    view = board(page, drawn("sokoban", info))
    marks = info["board"].split()
    assert view.locator(".cell").count() == len(marks) == 36
    assert view.locator(".cell.wall").count() == marks.count("#")
    assert view.locator(".cell.box").count() == marks.count("$") + marks.count("*")
    assert view.locator(".cell.agent").count() == 1


def test_sudoku_grid_is_drawn_with_its_digits_and_boxes(
    page: "Page", drawn: Callable[[str, dict[str, Any]], str]
) -> None:
    info = noted("sudoku")
    view = board(page, drawn("sudoku", info))
    marks = info["board"].split()
    assert view.locator(".cell").all_text_contents() == [m if m != "." else "" for m in marks]
    side = round(len(marks) ** 0.5)
    assert view.locator(".cell.edge-top").count() == side * (round(side**0.5) - 1)


def test_program_is_shown_with_the_results_of_its_tests(
    page: "Page", drawn: Callable[[str, dict[str, Any]], str]
) -> None:
    text = board(page, drawn("code", _CODE)).inner_text()
    assert "3 of 4 hidden tests pass" in text
    assert "1 \u00d7 time" in text
    assert "two-sum" in text
