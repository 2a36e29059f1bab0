"""Every update that comes in is drawn, however fast they come.

The measurements are those of ``python -m benchmarks.api``, which compares them with their goals.
Figures are printed as one JSON line and not judged here: they hang on how busy the machine is.
"""

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from router_world import RouterWorld

from benchmarks.api.page import UPDATES_PER_S, measure_first_paint, measure_updates

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.timeout(900)
_SECONDS = 5


def test_jobs_page_is_painted_and_lists_the_job(
    context: "BrowserContext", job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measure_first_paint(context, job, rounds=3)
    _print(capsys, found)
    assert 0 < found["first_paint_ms_p50"] <= found["jobs_listed_ms_p50"]


def test_sixty_updates_a_second_of_twenty_series_are_all_drawn(
    page: "Page", world: RouterWorld, spec: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = world.submit({**spec, "name": "fast", "steps": 100_000})
    world.client.post(f"/v1/jobs/{job_id}/pause").raise_for_status()
    world.wait_for(job_id, lambda job: job["state"] == "paused")
    found = measure_updates(page, world.redis_url, job_id, seconds=_SECONDS)
    _print(capsys, found)
    assert found["updates"] == UPDATES_PER_S * _SECONDS, "the newest was drawn last"
    assert found["charts"] >= 10


def _print(capsys: pytest.CaptureFixture[str], figures: dict[str, Any]) -> None:
    with capsys.disabled():
        print("\n" + json.dumps({**figures, "load_average": round(os.getloadavg()[0], 1)}))
