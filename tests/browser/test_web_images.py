"""The episode page shows what each agent saw, beside what it answered, and at two steps."""

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from router_world import RouterWorld

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.images import keep_images
from troupe.tasks.content import ImagePart
from troupe.tasks.family import observed_images
from troupe.tasks.registry import load_family
from troupe.vision.wire import image_table

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def board() -> ImagePart:
    """What the tool agent of Plan-Path sees at first."""
    family = load_family("plan_path", {"size": 6, "observe": "image"})
    environment = family.environment()
    state = environment.reset(family.taskset().task("test", 0))
    (image,) = observed_images(environment.observe(state, "tool"))
    return image


@pytest.fixture(scope="module")
def seen(world: RouterWorld, hostile_job: str, board: ImagePart) -> list[str]:
    """One task recorded at two steps, with its board as an image; the addresses."""
    run_dir = world.runs_dir / hostile_job
    path = run_dir / "episodes.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    keep_images(run_dir, [pb.Episode(images=image_table([board]))])
    image = {"digest": board.digest, "width": board.width, "height": board.height}
    message = {"role": "user", "content": "[image]tool", "parts": [image, {"text": "tool"}]}
    line |= {"task_id": "plan_path/test/77", "groups": line["groups"][:1]}
    line["groups"][0]["prompt"] = [message]
    places = ("eval-00000-00777", "eval-00001-00777")
    for step, place in enumerate(places):
        episode_id = f"{hostile_job}/{place.replace('-00777', '/00777')}"
        with path.open("a") as file:
            file.write(json.dumps({**line, "episode_id": episode_id, "step": step}) + "\n")
    deadline = time.monotonic() + 20
    while world.client.get(f"/v1/jobs/{hostile_job}/episodes/{places[1]}").status_code == 404:
        assert time.monotonic() < deadline, "the episode never came into the index"
        time.sleep(0.2)
    base = f"/jobs/{hostile_job}"
    return [f"{base}/episodes/{places[0]}", f"{base}/compare/{places[0]}/{places[1]}"]


_NATURAL = "nodes => nodes.map(node => [node.naturalWidth, node.naturalHeight])"


def test_episode_when_a_prompt_has_an_image_then_shows_it_beside_the_candidates(
    page: "Page", seen: list[str], board: ImagePart, photograph: Callable[..., None]
) -> None:
    page.goto(seen[0])
    image = page.locator(".draw-card img.seen")
    image.wait_for()
    page.wait_for_function("document.querySelector('img.seen').naturalWidth > 0")
    assert image.evaluate_all(_NATURAL) == [[board.width, board.height]]
    assert board.digest[:12] in (image.get_attribute("alt") or "")
    assert page.locator(".draw-card .message pre").inner_text() == "tool"
    assert page.locator(".draw-card article.cand").count() > 0
    photograph(page, "image")


def test_compare_when_a_prompt_has_an_image_then_each_side_shows_its_own(
    page: "Page", seen: list[str]
) -> None:
    page.goto(seen[1])
    page.locator(".compare-side img.seen").nth(1).wait_for()
    assert page.locator(".compare-side img.seen").count() == 2
