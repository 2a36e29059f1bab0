"""The page of a job that goes on, and a page of which a part fails."""

from typing import TYPE_CHECKING, Any

import pytest
from router_world import RouterWorld

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(900)


def test_job_that_succeeded_when_given_more_steps_then_its_page_follows_it_on(
    page: "Page", world: RouterWorld, spec: dict[str, Any]
) -> None:
    job_id = world.submit({**spec, "name": "longer", "steps": 1, "eval": None})
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
