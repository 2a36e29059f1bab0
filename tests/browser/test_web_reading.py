"""The page is readable: narrow, dark, by keyboard, and with names for what is on it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from router_world import RouterWorld, visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(900)
_PLACES = ("/", "/jobs/{job}", "/jobs/{job}/episodes", "/jobs/{job}/episodes/{row}")
_MORE = (
    "/jobs/{job}/policies",
    "/jobs/{job}/checkpoints",
    "/jobs/{job}/events",
    "/jobs/{job}/logs",
    "/jobs/{job}/spec",
    "/new",
    "/cluster",
)


def places(job: str) -> list[str]:
    return [one.format(job=job, row="train-00002-00000") for one in (*_PLACES, *_MORE)]


def test_every_page_at_390_pixels_fits_without_scrolling_sideways(
    page: "Page", job: str, photograph: Callable[..., None]
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    wide: list[str] = []
    for place in places(job):
        page.goto(place)
        page.locator("main").wait_for()
        page.wait_for_load_state("networkidle" if "jobs/" not in place else "load")
        page.wait_for_timeout(300)
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(place)
    assert wide == []
    page.goto(f"/jobs/{job}/episodes/train-00002-00000")
    page.locator(".draw-card").first.wait_for()
    photograph(page, "narrow")


def test_dark_is_kept_over_a_reload_and_changes_the_ground(
    page: "Page", job: str, photograph: Callable[..., None]
) -> None:
    page.goto("/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Switch between light and dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light == "rgb(246, 247, 249)"
    assert dark == "rgb(15, 19, 26)"
    page.goto(f"/jobs/{job}")
    page.locator("[data-chart=phases] canvas").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    photograph(page, "dark")


def test_keyboard_reaches_a_job_its_tabs_and_its_draws(page: "Page", job: str) -> None:
    page.goto("/")
    page.locator("tr", has_text=job).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == job:
            break
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}")
    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"**/jobs/{job}/episodes")
    page.goto(f"/jobs/{job}/episodes/train-00002-00000")
    page.locator(".draw-card.picked").wait_for()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.agent") == "planner"
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.dataset.agent") == "tool"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_has_no_fault_that_axe_knows(
    chromium: "Browser", world: RouterWorld, job: str, scheme: str, width: int
) -> None:
    """Names, roles, headings and contrast, as axe-core judges them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found: list[str] = []
    with visitor(chromium, world, color_scheme=scheme, width=width) as context:
        page = context.new_page()
        for place in places(job):
            page.goto(place)
            page.locator("main h1").wait_for()
            loading = page.locator("main .waiting").first
            while loading.count():
                loading.wait_for(state="detached")
            told = page.locator("html").get_attribute("data-mantine-color-scheme")
            assert told == scheme
            for fault in axe.run(page).response["violations"]:
                where = [node["html"][:120] for node in fault["nodes"][:2]]
                found.append(f"{place}: {fault['id']} ({fault['impact']}) at {where}")
    assert found == []
