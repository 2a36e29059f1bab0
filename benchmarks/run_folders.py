"""Time to list run folders, from their files alone, and to bring their jobs back after a loss.

Run: ``python -m benchmarks.run_folders [--quick] [--folders N]``. The folders are made here, each
with the files that a finished job leaves; Valkey and the REST application are real. Floor of the
listing: opening and reading the same files without looking into them, in the same run. The last
line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.streams import embedded
from troupe.runtime.streams.redis import connect
from troupe.spec import parse_spec
from troupe_router.jobs.job_file import write_job
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.store import MemberStore
from troupe_router.rest.app import create_app
from troupe_router.rest.event_fanout import EventFanout
from troupe_router.rest.parts import RestParts
from troupe_router.run.folders import run_folders
from troupe_router.settings import RouterSettings

LIST_MS = 300.0
SPEC: dict[str, Any] = {
    "name": "demo",
    "steps": 40,
    "tasks_per_step": 32,
    "task": {"name": "plan_path", "params": {"size": 6}},
    "workflow": {"order": ["tool", "planner"], "max_turns": 4},
    "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
    "policies": {"shared": {"model": "Qwen/Qwen3-0.6B"}},
}


def make_folders(runs_dir: Path, count: int) -> None:
    """``count`` run folders of jobs that succeeded, each with a spec of its own seed."""
    for number in range(1, count + 1):
        run_dir = runs_dir / f"demo-{number}"
        run_dir.mkdir()
        spec = parse_spec({**SPEC, "seed": number})
        (run_dir / "spec.json").write_text(spec.model_dump_json(indent=2))
        for name in ("summary.json", "metrics.jsonl", "episodes.jsonl", "report.md"):
            (run_dir / name).write_text("{}\n" * 100)
        at = 1.7e9 + number
        write_job(JobRecord(run_dir.name, spec, run_dir, "succeeded", at, at, at, owner="ci"), {})


def read_all(runs_dir: Path) -> int:
    """The floor: every ``job.json`` opened and read."""
    return sum(len((folder / "job.json").read_bytes()) for folder in runs_dir.iterdir())


def timed_ms(
    work: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Milliseconds of each of ``rounds`` calls."""
    took: list[float] = []
    for _ in range(rounds):
        began = clock()
        work()
        took.append(1000 * (clock() - began))
    return took


async def rest(runs_dir: Path, url: str, rounds: int) -> dict[str, float]:
    """Milliseconds over REST: all pages of folders, the import of every job, a page of jobs."""
    redis = await connect(url, connect_for_s=10)
    settings = RouterSettings(runs_dir=runs_dir)
    store, members = JobStore(redis), MemberStore(redis, ttl_s=5)
    fanout = EventFanout(redis, store, blocking=redis, max_streams=10)

    async def is_ready() -> bool:
        return True

    commands = JobCommands(settings, redis, store)
    disk = DiskSpace(runs_dir, needed_bytes=settings.min_free_bytes)
    app = create_app(RestParts(settings, redis, store, commands, members, fanout, is_ready, disk))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as http:

        async def folders() -> int:
            cursor, count = None, 0
            while True:
                query = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
                page = (await http.get("/v1/run-folders", params=query)).json()
                count, cursor = count + len(page["folders"]), page["next_cursor"]
                if cursor is None:
                    return count

        async def import_all() -> int:
            await redis.flushall()
            answer = await http.post("/v1/run-folders/import", timeout=300)
            return len(answer.json()["imported"])

        async def jobs() -> int:
            return len((await http.get("/v1/jobs", params={"limit": 50})).json()["jobs"])

        found = {
            "folders": await _median_ms(folders, rounds),
            "import": await _median_ms(import_all, 1),
            "jobs": await _median_ms(jobs, rounds),
        }
    await fanout.close()
    await redis.aclose()
    return found


async def _median_ms(work: Callable[[], Awaitable[int]], rounds: int) -> float:
    took: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        assert await work()
        took.append(1000 * (time.perf_counter() - began))
    return round(statistics.median(took), 1)


@contextlib.contextmanager
def valkey(folder: Path) -> Generator[str]:
    """A server of this run alone; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder.mkdir()
    command = embedded.server_argv(port, folder, fsync="no")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield embedded.url(port)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; under a minute")
    parser.add_argument("--folders", type=int, default=3000)
    args = parser.parse_args()
    clean_up_on_sigterm()
    rounds = 3 if args.quick else 15
    base = Path(tempfile.mkdtemp(prefix="troupe-run-folders-"))
    try:
        runs_dir = base / "runs"
        runs_dir.mkdir()
        make_folders(runs_dir, args.folders)
        listed = timed_ms(lambda: run_folders(runs_dir), rounds)
        cpu = timed_ms(lambda: run_folders(runs_dir), rounds, time.process_time)
        floor = timed_ms(lambda: read_all(runs_dir), rounds)
        with valkey(base / "valkey") as url:
            over_rest = asyncio.run(rest(runs_dir, url, rounds))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    median = round(statistics.median(listed), 1)
    result = {
        "commit": commit(),
        "machine": machine(),
        "spec": f"{args.folders} run folders of jobs that succeeded",
        "n": rounds,
        "median": {
            "list_ms": median,
            "list_cpu_ms": round(statistics.median(cpu), 1),
            "floor_ms": round(statistics.median(floor), 1),
        },
        "spread": {"list_ms": [round(min(listed), 1), round(max(listed), 1)]},
        "rest_ms": over_rest,
        "load": round(os.getloadavg()[0], 1),
        "goals": [goal("list_ms", median, LIST_MS, median <= LIST_MS)],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
