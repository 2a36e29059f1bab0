"""The page of a job that goes on, and a page of which a part fails."""

import json
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from router_world import RouterWorld

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(900)


def test_page_when_a_part_cannot_be_drawn_then_says_so_and_the_rest_stays(page: "Page") -> None:
    page.route("**/v1/jobs/*/episodes/*", lambda route: route.fulfill(json={"id": "broken"}))
    page.goto("/jobs/none-1/episodes/broken")
    alert = page.get_by_role("alert", name="This could not be drawn")
    alert.wait_for()
    assert alert.get_by_role("button", name="Try again").is_visible()
    page.get_by_role("link", name="Cluster").click()
    page.get_by_text("Active jobs", exact=True).wait_for()
    assert alert.count() == 0


def test_form_when_it_cannot_show_a_spec_then_the_spec_can_be_edited_as_json(
    page: "Page",
) -> None:
    page.goto("/new")
    page.get_by_text("JSON", exact=True).click()
    editor = page.get_by_label("Job spec as JSON")
    spec = json.loads(editor.input_value())
    names = ["constructor", *list(spec["agents"])[1:]]
    agents = dict(zip(names, spec["agents"].values(), strict=True))
    editor.fill(json.dumps({**spec, "agents": agents}))
    page.get_by_text("Form", exact=True).click()
    page.get_by_role("alert", name="The form cannot show this spec").wait_for()
    page.get_by_text("JSON", exact=True).click()
    editor.fill(json.dumps(spec))
    page.get_by_text("Form", exact=True).click()
    page.get_by_label(re.compile("^Name")).first.wait_for()


def test_new_job_when_a_browser_changes_its_seed_then_is_not_started(page: "Page") -> None:
    page.goto("/new")
    page.get_by_text("JSON", exact=True).click()
    editor = page.get_by_label("Job spec as JSON")
    spec = json.loads(editor.input_value())
    editor.fill(json.dumps({**spec, "seed": 2**53 + 1}))
    page.locator(".fault-list code", has_text="/seed").wait_for()
    assert page.get_by_role("button", name="Start the job").is_disabled()


def test_new_job_when_begun_after_a_copy_of_another_then_starts_from_the_task(
    page: "Page", job: str
) -> None:
    page.goto(f"/new?from={job}")
    start = page.get_by_label("Start from")
    name = page.get_by_label(re.compile("^Name")).first
    name.wait_for()
    assert start.input_value() == f"job:{job}"
    with page.expect_response("**/v1/tasks/plan_path/spec"):
        page.get_by_role("link", name="New job").click()
    assert start.input_value() == "plan_path"


def test_tab_when_its_name_is_one_that_every_object_has_then_is_no_tab(
    page: "Page", job: str
) -> None:
    page.goto(f"/jobs/{job}/constructor")
    page.get_by_role("heading", name=job).wait_for()
    page.get_by_role("tab", name="Overview").wait_for()
    assert page.locator("[data-chart]").count() == 0


def test_logs_when_a_process_starts_later_then_its_log_comes_by_itself(
    page: "Page", job: str
) -> None:
    page.route("**/v1/jobs/*/logs", lambda route: route.fulfill(json={"components": []}), times=1)
    page.goto(f"/jobs/{job}/logs")
    page.get_by_text("No log yet").wait_for()
    page.locator("pre.log").wait_for()


def test_charts_when_the_series_fail_once_then_come_by_themselves(page: "Page", job: str) -> None:
    page.route("**/metrics?max_points*", lambda route: route.abort(), times=1)
    page.goto(f"/jobs/{job}")
    page.locator("[data-chart] canvas").first.wait_for()
    assert page.get_by_text("The charts could not be loaded").count() == 0


def test_job_page_when_opened_then_does_not_ask_for_the_job_at_every_step_of_its_past(
    page: "Page", job: str, world: RouterWorld
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    begun = time.monotonic()
    page.goto(f"/jobs/{job}/events")
    page.locator(".event-text", has_text="The job is succeeded").wait_for()
    page.locator(".event-text", has_text="Step 1 done").wait_for()
    # Once to show it, once when its stream ends, and every three seconds.
    most = 3 + (time.monotonic() - begun) / 3
    assert asked.count(f"/v1/jobs/{job}") <= most


def test_job_that_succeeded_when_given_more_steps_then_its_page_follows_it_on(
    page: "Page", world: RouterWorld, spec: dict[str, Any]
) -> None:
    job_id = world.submit({**spec, "name": "longer", "steps": 1, "eval": {"num_tasks": 4}})
    world.finish(job_id)
    page.goto(f"/jobs/{job_id}/events")
    page.locator(".event-text", has_text="The job is succeeded").wait_for()
    page.evaluate("window.isSamePage = true")
    page.get_by_role("button", name="More steps").click()
    steps = page.get_by_role("dialog").get_by_label("Steps in all")
    assert steps.input_value() == "2"
    page.get_by_role("button", name="Train on").click()
    page.locator(".event-text", has_text="Step 2 done").wait_for(timeout=300_000)
    page.locator(".now-steps", has_text="Step 2 of 2").wait_for()
    page.locator(".page-head .state-succeeded").wait_for(timeout=60_000)
    assert page.evaluate("window.isSamePage") is True, "the page must move without a reload"
