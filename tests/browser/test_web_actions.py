"""What a visitor does on the page: enters a key, submits, watches, cancels; and what goes wrong."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from router_world import HOSTILE, KEYS, RouterWorld

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.timeout(900)


def test_visitor_without_a_key_is_asked_and_a_wrong_key_is_refused(
    chromium: "Browser", world: RouterWorld
) -> None:
    context = chromium.new_context(base_url=world.url)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto("/")
    field = page.locator("input[type=password]")
    field.fill("troupe_wrong")
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("This key is not known here").wait_for()
    field.fill(KEYS["reader"])
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("heading", name="Jobs").wait_for()
    assert page.get_by_role("link", name="New job").count() == 0, "a reader may not submit"
    assert page.evaluate("document.cookie") == "", "scripts must not see the key"
    page.get_by_label("Sign out").click()
    page.get_by_role("heading", name="Enter your API key").wait_for()
    context.close()


def test_submit_form_checks_while_typing_and_starts_a_job_that_moves_live(
    page: "Page", world: RouterWorld, spec: dict[str, Any], photograph: Callable[..., None]
) -> None:
    page.goto("/new")
    start = page.get_by_role("button", name="Start the job")
    name = page.get_by_label(re.compile("^Name")).first
    name.fill("Not A Name")
    page.locator(".fault-list code", has_text="/name").wait_for()
    assert start.is_disabled()
    name.fill("typed")
    page.get_by_text("This job can run.").wait_for()
    photograph(page, "new-job")
    page.get_by_text("JSON", exact=True).click()
    document = {**spec, "name": "from-page", "steps": 2, "eval": {"num_tasks": 4}}
    page.get_by_label("Job spec as JSON").fill(json.dumps(document))
    start.click()
    page.wait_for_url("**/jobs/from-page-*")
    page.evaluate("window.isSamePage = true")
    sentence = page.locator("[data-waits]")
    sentence.wait_for()
    assert sentence.inner_text().endswith(".")
    page.locator(".link-live").wait_for()
    page.locator("[data-chart=phases] canvas").wait_for(timeout=150_000)
    photograph(page, "live")
    page.locator(".state-succeeded").wait_for(timeout=150_000)
    page.locator(".now-steps", has_text="Step 2 of 2").wait_for()
    assert page.evaluate("window.isSamePage") is True, "the page must move without a reload"


def test_json_editor_when_another_start_is_chosen_then_shows_the_spec_that_is_planned(
    page: "Page", world: RouterWorld
) -> None:
    page.goto("/new")
    page.get_by_text("JSON", exact=True).click()
    editor = page.get_by_label("Job spec as JSON")
    assert json.loads(editor.input_value())["task"]["name"] == "plan_path"
    with page.expect_request(
        lambda asked: "dry_run" in asked.url and '"sokoban"' in (asked.post_data or "")
    ):
        page.get_by_label("Start from").select_option("sokoban")
    assert json.loads(editor.input_value())["task"]["name"] == "sokoban"


def test_json_editor_when_its_text_is_no_spec_then_nothing_can_be_started(
    page: "Page", spec: dict[str, Any]
) -> None:
    page.goto("/new")
    page.get_by_text("JSON", exact=True).click()
    editor = page.get_by_label("Job spec as JSON")
    start = page.get_by_role("button", name="Start the job")
    for text in ('{"name": "half', "null"):
        editor.fill(json.dumps(spec))
        page.get_by_text("This job can run.").wait_for()
        editor.fill(text)
        page.locator(".fault-list").wait_for()
        assert start.is_disabled()
    page.get_by_text("Form", exact=True).click()
    page.get_by_text("This job can run.").wait_for()


def test_job_is_cancelled_only_after_a_second_word(
    page: "Page", world: RouterWorld, spec: dict[str, Any]
) -> None:
    job_id = world.submit({**spec, "name": "unwanted", "steps": 500})
    page.goto(f"/jobs/{job_id}")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Keep it").click()
    dialog.wait_for(state="hidden")
    assert world.client.get(f"/v1/jobs/{job_id}").json()["state"] in ("launching", "running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    page.locator(".state-cancelled").wait_for(timeout=60_000)


def test_pause_resume_and_cancel_move_every_open_window_live(
    page: "Page", context: "BrowserContext", world: RouterWorld, spec: dict[str, Any]
) -> None:
    job_id = world.submit({**spec, "name": "steered", "steps": 500})
    other, jobs = context.new_page(), context.new_page()
    for window in (page, other):
        window.goto(f"/jobs/{job_id}")
        window.evaluate("window.isSamePage = true")
    jobs.goto("/")
    jobs.evaluate("window.isSamePage = true")

    def see(state: str) -> None:
        for window in (page, other):
            window.locator(f".page-head .state-{state}").wait_for(timeout=150_000)
        jobs.locator("tr", has_text=job_id).locator(f".state-{state}").wait_for(timeout=60_000)

    see("running")
    page.get_by_role("button", name="Pause").click()
    see("paused")
    assert world.client.get(f"/v1/jobs/{job_id}").json()["state"] == "paused"
    page.get_by_role("button", name="Resume").click()
    see("running")
    assert world.client.get(f"/v1/jobs/{job_id}").json()["life"] == 2
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    see("cancelled")
    assert all(w.evaluate("window.isSamePage") for w in (page, other, jobs)), "no reload"


def test_router_that_cannot_be_reached_is_an_error_that_ends_with_its_cause(
    page: "Page", context: "BrowserContext", job: str
) -> None:
    page.goto("/")
    page.locator("tr", has_text=job).wait_for()
    context.set_offline(True)
    page.get_by_role("link", name="Cluster").click()
    alert = page.get_by_role("alert").first
    alert.wait_for()
    assert "cannot be reached" in alert.inner_text()
    assert alert.get_by_role("button", name="Try again").is_visible()
    context.set_offline(False)
    page.get_by_text("Active jobs", exact=True).wait_for()


def test_html_in_task_text_is_shown_and_never_run(page: "Page", hostile_job: str) -> None:
    page.goto(f"/jobs/{hostile_job}/episodes/eval-00000-00099")
    card = page.locator(".draw-card").first
    card.get_by_role("button", name="Prompt").click()
    assert HOSTILE in card.locator(".messages").inner_text()
    assert card.locator("pre.completion").first.inner_text() == HOSTILE
    assert HOSTILE in page.locator("h1").inner_text()
    for place in ("episodes", "logs"):
        page.goto(f"/jobs/{hostile_job}/{place}")
        page.get_by_text("onerror").first.wait_for()
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.hacked") is None


def test_policy_of_the_page_refuses_an_inline_script_and_another_host(
    context: "BrowserContext", world: RouterWorld
) -> None:
    page = context.new_page()
    page.goto("/")
    page.evaluate(
        """() => {
            window.broken = [];
            addEventListener('securitypolicyviolation', e => broken.push(e.effectiveDirective));
            const script = document.createElement('script');
            script.textContent = 'window.hacked = 1';
            document.body.append(script);
            fetch('https://example.com/').catch(() => {});
        }"""
    )
    page.wait_for_timeout(500)
    assert sorted(page.evaluate("window.broken")) == ["connect-src", "script-src-elem"]
    assert page.evaluate("window.hacked") is None


def test_page_loads_nothing_from_another_host(page: "Page", job: str, world: RouterWorld) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place in ("/", "/new", f"/jobs/{job}", "/cluster"):
        page.goto(place)
        page.wait_for_load_state("load")
    assert asked
    assert [url for url in asked if not url.startswith((world.url, "data:"))] == []
