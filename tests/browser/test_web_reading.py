"""The page is readable: narrow, dark, by keyboard, and with names for what is on it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.timeout(400)
_PLACES = ("/", "/jobs/{job}", "/jobs/{job}/episodes", "/jobs/{job}/episodes/{row}")
_MORE = (
    "/jobs/{job}/policies",
    "/jobs/{job}/checkpoints",
    "/jobs/{job}/events",
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


def test_every_control_has_a_name_and_every_text_enough_contrast(
    context: "BrowserContext", job: str
) -> None:
    page = context.new_page()
    nameless: list[str] = []
    pale: list[str] = []
    for place in places(job):
        page.goto(place)
        page.locator("main h1").wait_for()
        nameless += page.evaluate(_NAMELESS)
        pale += page.evaluate(_PALE)
    assert nameless == []
    assert pale == []


_NAMELESS = """() => [
  ...document.querySelectorAll('a, button:not([tabindex="-1"]), input, select, textarea')
]
  .filter(one => one.offsetParent && !(one.labels && one.labels.length)
    && !(one.getAttribute('aria-label') || one.textContent || one.title || '').trim())
  .map(one => location.pathname + ' ' + one.outerHTML.slice(0, 160))"""

_PALE = """() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = one => {
    for (let node = one; node; node = node.parentElement) {
      const color = rgb(getComputedStyle(node).backgroundColor);
      if (color.length === 3) return color;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('.faint, .sub, .stat-label, .stat-note, th, .nav, .count')]
    .filter(one => one.offsetParent && one.textContent.trim())
    .map(one => {
      const [a, b] = [light(rgb(getComputedStyle(one).color)), light(ground(one))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one];
    })
    .filter(([ratio]) => ratio < 4.5)
    .map(([ratio, one]) => location.pathname + ' ' + ratio.toFixed(2) + ' ' + one.className);
}"""
