"""The page in a real Chromium: its first paint, and live updates without lost frames.

Owns what is measured and how; whoever calls brings the browser's window and the router.
"""

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.report import percentile
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.redis import connect

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

UPDATES_PER_S = 60
NUM_SERIES = 20
"""Numbers of a line that charts draw: all but the step and the mean reward."""
_FRAME_MS = 1000 / 60


def measure_first_paint(context: "BrowserContext", job_id: str, *, rounds: int) -> dict[str, Any]:
    """First contentful paint of the jobs page, and when the job is listed."""
    paints: list[float] = []
    listed: list[float] = []
    for _ in range(rounds):
        page = context.new_page()
        page.goto("/")
        page.locator("tr", has_text=job_id).wait_for()
        listed.append(page.evaluate("performance.now()"))
        paints.append(page.evaluate(_FIRST_PAINT))
        page.close()
    return {
        "first_paint_ms_p50": round(percentile(paints, 0.5)),
        "first_paint_ms_max": round(max(paints)),
        "jobs_listed_ms_p50": round(percentile(listed, 0.5)),
    }


def measure_updates(
    page: "Page", redis_url: str, job_id: str, *, seconds: int, draw_within_s: float = 60.0
) -> dict[str, Any]:
    """Frames of a job's page while every chart gets ``UPDATES_PER_S`` points a second.

    Waits until the newest point is drawn, so a figure is of updates that all arrived.
    """
    page.goto(f"/jobs/{job_id}")
    page.locator(".link-live").wait_for()
    say(redis_url, job_id, first=0, count=1)
    page.locator("[data-chart=phases] canvas").wait_for()
    page.evaluate(_COUNT_FRAMES)
    gauge = page.context.new_cdp_session(page)
    gauge.send("Performance.enable", {"timeDomain": "threadTicks"})
    before, last = _main_thread_s(gauge), UPDATES_PER_S * seconds
    wall_s = say(redis_url, job_id, first=1, count=last)
    used_s = _main_thread_s(gauge) - before
    intervals: list[float] = page.evaluate("window.intervals")
    charts = page.locator("[data-chart] canvas").count()
    newest = page.locator("[data-chart=tokens] .u-legend", has_text=f"{last + 1000:,}")
    page.locator("[data-chart=tokens]").scroll_into_view_if_needed()
    newest.wait_for(timeout=1000 * draw_within_s)
    return {
        "updates": last,
        "updates_per_s": round(last / wall_s, 1),
        "charts": charts,
        "series": NUM_SERIES,
        "main_thread_cpu_ms_per_update": round(1000 * used_s / last, 2),
        "frames": len(intervals),
        "frame_ms_p50": round(percentile(intervals, 0.5), 1),
        "frame_ms_p95": round(percentile(intervals, 0.95), 1),
        "frames_dropped": sum(max(0, round(interval / _FRAME_MS) - 1) for interval in intervals),
    }


def line(step: int) -> dict[str, Any]:
    """A training step's line with the numbers that the charts draw."""
    wave = math.sin(step / 20)
    return {
        "step": step,
        "success_rate": 0.5 + 0.4 * wave,
        "reward_mean": wave,
        "reward_std": 1 + wave / 2,
        "advantage_std": 1 - wave / 2,
        "reward_by_agent": {"tool": wave, "planner": -wave},
        "kl_rollout": 0.01 + 0.005 * wave,
        "entropy": 1 + wave / 3,
        "clip_fraction_low": 0.1 + 0.05 * wave,
        "clip_fraction_high": 0.1 - 0.05 * wave,
        "grad_norm": 1 + wave / 2,
        "tokens_per_s": 1000 + step,
        "completion_tokens": 40 + 4 * wave,
        "turns_mean": 2 + wave,
        "groups_trained": 20,
        "groups_zero_variance": 3,
        "staleness": 0,
        "phases": {"generate": 1 + wave / 2, "env": 0.2, "learn": 0.6, "publish": 0.1},
    }


def say(redis_url: str, job_id: str, *, first: int, count: int) -> float:
    """Say ``count`` steps as the router would, evenly; the seconds it took.

    In a thread of its own: the browser's driver keeps an event loop in this one.
    """
    with ThreadPoolExecutor(1) as pool:
        emit = _emit(redis_url, job_id, first=first, count=count)
        return pool.submit(asyncio.run, emit).result(timeout=600)


async def _emit(redis_url: str, job_id: str, *, first: int, count: int) -> float:
    redis = await connect(redis_url)
    log = EventLog(redis, job_id, source="router")
    started = time.monotonic()
    for n in range(count):
        await log.emit("step.recorded", line(first + n))
        await asyncio.sleep(max(0.0, started + (n + 1) / UPDATES_PER_S - time.monotonic()))
    await redis.aclose()
    return time.monotonic() - started


def _main_thread_s(gauge: Any) -> float:
    """Processor seconds of the page's main thread: what others do on the machine is not in it."""
    metrics = {
        metric["name"]: metric["value"]
        for metric in gauge.send("Performance.getMetrics")["metrics"]
    }
    return float(metrics["TaskDuration"])


_FIRST_PAINT = """() => new Promise(done => new PerformanceObserver(list => done(
    list.getEntriesByName('first-contentful-paint')[0].startTime
)).observe({ type: 'paint', buffered: true }))"""

_COUNT_FRAMES = """() => {
  window.intervals = [];
  let last = performance.now();
  const tick = now => {
    window.intervals.push(now - last);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""
