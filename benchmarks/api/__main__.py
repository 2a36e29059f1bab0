"""The REST API and the page under load, on a real router with an embedded Valkey.

Reads a second and core are requests over the router's own processor time, so the clients do not
count. The first event is that of a job which a second router launches itself, with the services
up. The page is measured where a Chromium is. One JSON line last. ``--quick`` stays near a minute;
without it, 100,000 episodes and 1,000 clients.
"""

import argparse
import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from benchmarks.api.episodes import measure_pages, write_run
from benchmarks.api.first_event import measure_first_event
from benchmarks.api.page import measure_first_paint, measure_updates
from benchmarks.api.reads import measure_reads
from benchmarks.api.router import JOB, Bench, empty_model, running, spec
from benchmarks.api.streams import measure_streams
from benchmarks.random_model import save_random_model
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine

READS_PER_CORE = 500.0
PAGE_MS = 200.0
FIRST_EVENT_S = 1.0
FIRST_PAINT_MS = 1500.0
FRAMES_DROPPED = 0
FLAT_SHARE = 0.1
"""Memory may grow by this share between the first half of the events and the end."""


def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Every figure, the quiet ones first."""
    figures_of: dict[str, Any] = {}

    def keep(name: str, figures: dict[str, Any]) -> None:
        figures_of[name] = figures
        print(f"{name}: {figures}", file=sys.stderr)

    with running(folder / "launching", launcher="local") as bench:
        model = save_random_model(folder / "model")
        first = measure_first_event(bench, model, 2 if quick else 20)
        keep("first_event", asyncio.run(first))
    with running(folder / "reading") as bench:
        assert _submit(bench, folder) == JOB
        num_episodes = 10_000 if quick else 100_000
        write_run(bench.runs_dir / JOB, num_episodes, 200 if quick else 1000)
        keep("pages", measure_pages(bench, num_episodes, 5 if quick else 20))
        keep("reads", asyncio.run(measure_reads(bench, 0.7 if quick else 3.0)))
        num_clients, num_events = (200, 100) if quick else (1000, 400)
        keep("streams", asyncio.run(measure_streams(bench, num_clients, num_events)))
        page = measure_page(bench, _submit(bench, folder), quick=quick)
        if page is not None:
            keep("page", page)
    return figures_of


def _submit(bench: Bench, folder: Path) -> str:
    document = spec(empty_model(folder / "empty"))
    answer = httpx.post(f"{bench.url}/v1/jobs", json=document, timeout=30.0, trust_env=False)
    assert answer.status_code == 201, answer.text
    return answer.json()["job_id"]


def measure_page(bench: Bench, job_id: str, *, quick: bool) -> dict[str, Any] | None:
    """First paint and live updates of a job without steps, or None where there is no browser."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("page: not measured; it needs chromium and playwright", file=sys.stderr)
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        context = browser.new_context(
            base_url=bench.url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
        )
        context.set_default_timeout(60_000)
        paint = measure_first_paint(context, job_id, rounds=3 if quick else 10)
        updates = measure_updates(
            context.new_page(), bench.redis_url, job_id, seconds=5 if quick else 20
        )
        browser.close()
    return {**paint, **updates}


def goals(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Each figure against what it must reach; those of the page only where it was measured."""
    reads = figures["reads"]["mixed"]["per_core_s"]
    pages = figures["pages"]["page_ms_max"]
    first = figures["first_event"]["first_event_s_max"]
    growth = figures["streams"]["growth"]
    is_flat = growth <= FLAT_SHARE and figures["streams"]["complete"]
    held = [
        goal("reads_per_core_s", reads, READS_PER_CORE, reads >= READS_PER_CORE),
        goal("episodes_page_ms_max", pages, PAGE_MS, pages <= PAGE_MS),
        goal("submit_to_first_event_s_max", first, FIRST_EVENT_S, first <= FIRST_EVENT_S),
        goal("sse_memory_growth", growth, FLAT_SHARE, is_flat),
    ]
    if page := figures.get("page"):
        paint, dropped = page["first_paint_ms_p50"], page["frames_dropped"]
        held += [
            goal("first_paint_ms_p50", paint, FIRST_PAINT_MS, paint <= FIRST_PAINT_MS),
            goal("frames_dropped", dropped, FRAMES_DROPPED, dropped <= FRAMES_DROPPED),
        ]
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    clean_up_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), quick=quick)
    document = {
        "benchmark": "api",
        "commit": commit(),
        "machine": machine(),
        "load_1min": load,
        "quick": quick,
        **figures,
        "goals": goals(figures),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
