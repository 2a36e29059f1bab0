"""A real Chromium on the page of a real router with a real job that has run."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from platform_world import make_tiny_base
from router_world import HOSTILE, RouterWorld, running_router, small_spec, visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser_program() -> str:
    """The browser's program; its absence skips the tests and says what is missing."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on this machine; install the package chromium")
    return program


@pytest.fixture(scope="module")
def chromium(browser_program: str) -> Iterator["Browser"]:
    """A browser for one file: while it is open this thread runs Playwright's event loop.

    Tests of other folders want a loop of their own, so it must not stay open for the session.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def world(
    browser_program: str, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[RouterWorld]:
    """A router with keys, alive for the whole session."""
    with running_router(tmp_path_factory.mktemp("router"), free_port) as found:
        yield found


@pytest.fixture(scope="session")
def base(world: RouterWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model made here."""
    return make_tiny_base(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def spec(base: Path) -> dict[str, Any]:
    """A job of seconds."""
    return small_spec(base)


@pytest.fixture(scope="session")
def job(world: RouterWorld, spec: dict[str, Any]) -> str:
    """A job that has run to its end."""
    job_id = world.submit(spec)
    world.finish(job_id)
    return job_id


@pytest.fixture(scope="session")
def hostile_job(world: RouterWorld, spec: dict[str, Any]) -> str:
    """A finished job whose recorded text is HTML that would run if it were taken as such."""
    job_id = world.submit({**spec, "name": "hostile", "steps": 0, "eval": {"num_tasks": 1}})
    world.finish(job_id)
    path = world.runs_dir / job_id / "episodes.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    line |= {"episode_id": f"{job_id}/eval-00000/00099", "task_id": f"plan_path/test/{HOSTILE}"}
    for group in line["groups"]:
        group["prompt"] = [{"role": "user", "content": HOSTILE}]
        for candidate in group["candidates"]:
            candidate |= {"text": HOSTILE, "info": {"grid": HOSTILE, "note": HOSTILE}}
            candidate.pop("tokens", None)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with (world.runs_dir / job_id / "logs" / "env-0.log").open("a") as file:
        file.write(HOSTILE + "\n")
    return job_id


@pytest.fixture
def context(chromium: "Browser", world: RouterWorld) -> Iterator["BrowserContext"]:
    """A window of a visitor who has entered the admin key."""
    with visitor(chromium, world) as found:
        yield found


@pytest.fixture
def page(context: "BrowserContext") -> Iterator["Page"]:
    """A page that must not raise, nor break the page's own policy."""
    found = context.new_page()
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on(
        "console",
        lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None,
    )
    yield found
    assert faults == []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-screenshots", action="store_true", help="write those of the docs")


@pytest.fixture
def photograph(pytestconfig: pytest.Config, tmp_path: Path) -> Callable[..., None]:
    """Takes a screenshot; `make test-browser` keeps it for the docs."""
    folder = IMAGES if pytestconfig.getoption("--keep-screenshots", False) else tmp_path

    def keep(page: "Page", name: str, **how: Any) -> None:
        page.evaluate("document.fonts.ready")
        page.screenshot(path=folder / f"web-{name}.png", **how)

    return keep
