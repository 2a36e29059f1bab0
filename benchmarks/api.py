"""The REST API under load: reads a second and core, SSE clients, pages of episodes, first event.

Runs a real router (its own process, with an embedded Valkey) and asks it over sockets. Reads a
second and core are requests over the router's own processor time, so the clients do not count.
One JSON line last. ``--quick`` stays under a minute; without it, 100,000 episodes and 1,000
clients.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.report import commit, goal, machine, percentile
from troupe.streams import embedded
from troupe.streams.events import EventLog
from troupe.streams.redis import connect

READS_PER_CORE = 500.0
PAGE_MS = 200.0
FIRST_EVENT_S = 1.0
FLAT_SHARE = 0.1
"""Memory may grow by this share between the first half of the events and the end."""
JOB = "api-1"


@dataclass
class Bench:
    """A router that runs, and what it runs on."""

    url: str
    port: int
    redis_url: str
    runs_dir: Path
    router: psutil.Process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Bench]:
    """Valkey and the router as processes."""
    redis_port, rest_port = free_port(), free_port()
    url = embedded.url(redis_port)
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TROUPE_ROUTER_REST_ADDRESS": f"127.0.0.1:{rest_port}",
        "TROUPE_ROUTER_GRPC_ADDRESS": "127.0.0.1:0",
        "TROUPE_ROUTER_REDIS_URL": url,
        "TROUPE_ROUTER_RUNS_DIR": str(folder / "runs"),
        "TROUPE_ROUTER_LAUNCHER": "none",
        "TROUPE_ROUTER_LOG_LEVEL": "warning",
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    argv = embedded.server_argv(redis_port, folder, fsync="no")
    valkey = subprocess.Popen(argv, **quiet)
    router = subprocess.Popen(
        [sys.executable, "-m", "services.router"], env=env, stdout=subprocess.DEVNULL
    )
    try:
        base = f"http://127.0.0.1:{rest_port}"
        deadline = time.monotonic() + 120
        while not _is_up(base):
            assert router.poll() is None, "the router ended"
            assert time.monotonic() < deadline, "the router did not come up"
            time.sleep(0.1)
        yield Bench(base, rest_port, url, folder / "runs", psutil.Process(router.pid))
    finally:
        for process in (router, valkey):
            process.terminate()
        for process in (router, valkey):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _is_up(base: str) -> bool:
    try:
        return httpx.get(f"{base}/readyz", timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def spec(folder: Path) -> dict[str, Any]:
    """A job that nothing works on: the launcher is none."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    return {
        "name": "api",
        "steps": 1000,
        "tasks_per_step": 100,
        "task": {"name": "plan_path", "params": {"size": 6}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 4},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": str(model)}},
        "limits": {"startup_timeout_s": 3600},
    }


def write_run(run_dir: Path, num_episodes: int, num_steps: int) -> None:
    """The files of a job that has run for a while."""
    with (run_dir / "metrics.jsonl").open("w") as file:
        for step in range(num_steps):
            phases = dict.fromkeys(("generate", "env", "learn", "publish", "other"), 0.5)
            line = {"kind": "train", "step": step, "phases": phases, "wall_s": 2.5}
            line |= dict.fromkeys(("reward_mean", "loss", "entropy", "kl_rollout"), 0.25)
            file.write(json.dumps(line) + "\n")
    with (run_dir / "episodes.jsonl").open("w") as file:
        for number in range(num_episodes):
            file.write(json.dumps(_episode(number)) + "\n")


def _episode(number: int) -> dict[str, Any]:
    step, position = divmod(number, 100)
    name = f"{JOB}/train-{step:05d}/{position:05d}"
    groups = [
        {
            "group_id": f"{name}/{agent}/t00",
            "agent": agent,
            "turn": 0,
            "policy": "p",
            "policy_version": step,
            "prompt": [{"role": "user", "content": "Find the way through the grid. " * 8}],
            "candidates": [
                {
                    "index": i,
                    "turn": 0,
                    "text": "plan U U L L D D R",
                    "reward": (number * 7 + i) % 100 / 100,
                    "team_reward": 0.5,
                    "local_rewards": {"format": 1.0},
                    "is_chosen": i == 0,
                    "is_done": True,
                    "is_success": False,
                    "is_truncated": False,
                }
                for i in range(4)
            ],
        }
        for agent in ("tool", "planner")
    ]
    return {
        "episode_id": name,
        "round_id": f"train-{step:05d}",
        "kind": "train",
        "step": step,
        "task_id": f"plan_path/train/{number % 5000}",
        "is_success": number % 3 == 0,
        "num_turns": 1,
        "team_return": 0.5,
        "num_tokens": 80,
        "wall_s": 0.4,
        "groups": groups,
    }


def measure_pages(bench: Bench, num_episodes: int, rounds: int) -> dict[str, Any]:
    """Times of pages of episodes, of all orders and filters, and of walking through them."""
    path = f"/v1/jobs/{JOB}/episodes"
    filters: list[dict[str, str]] = [
        {},
        {"order": "oldest"},
        {"order": "reward_desc"},
        {"order": "reward_asc", "agent": "tool"},
        {"failure": "any"},
        {"failure": "none", "order": "oldest"},
        {"agent": "planner", "min_reward": "0.4", "max_reward": "0.6"},
        {"min_reward": "0.9"},
        {"step": str(num_episodes // 200)},
        {"task_id": "plan_path/train/17"},
    ]
    times: list[float] = []
    with httpx.Client(base_url=bench.url, timeout=60.0, trust_env=False) as http:
        started = time.perf_counter()
        while not http.get(path, params={"limit": "1"}).json()["is_complete"]:
            pass
        index_s = time.perf_counter() - started
        for wanted in filters:
            cursor: dict[str, str] = {}
            for _ in range(rounds):
                started = time.perf_counter()
                page = http.get(path, params={**wanted, **cursor}).json()
                times.append((time.perf_counter() - started) * 1000)
                if page["next_cursor"] is None:
                    break
                cursor = {"cursor": page["next_cursor"]}
        tree: list[float] = []
        for number in range(0, num_episodes, max(1, num_episodes // 20)):
            step, position = divmod(number, 100)
            started = time.perf_counter()
            answer = http.get(f"{path}/train-{step:05d}-{position:05d}")
            tree.append((time.perf_counter() - started) * 1000)
            assert answer.status_code == 200, answer.text
    return {
        "episodes": num_episodes,
        "index_s": round(index_s, 2),
        "pages": len(times),
        "page_ms_p50": round(percentile(times, 0.5), 2),
        "page_ms_p95": round(percentile(times, 0.95), 2),
        "page_ms_max": round(max(times), 2),
        "episode_ms_p50": round(percentile(tree, 0.5), 2),
        "episode_ms_max": round(max(tree), 2),
    }


READS = {
    "job": f"/v1/jobs/{JOB}",
    "jobs": "/v1/jobs?limit=10",
    "events": f"/v1/jobs/{JOB}/events?limit=20",
    "steps": f"/v1/jobs/{JOB}/steps?limit=20",
    "quota": "/v1/quota",
    "metrics": f"/v1/jobs/{JOB}/metrics?names=reward_mean&max_points=200",
}


async def measure_reads(bench: Bench, seconds: float) -> dict[str, Any]:
    """Reads over the router's processor time: of each kind, and of all kinds in turn."""
    found: dict[str, Any] = {}
    for name, paths in [*((n, [p]) for n, p in READS.items()), ("mixed", list(READS.values()))]:
        before, started = _cpu_s(bench.router), time.perf_counter()
        counts = await asyncio.gather(*(_ask(bench, paths, seconds) for _ in range(8)))
        wall_s, cpu_s = time.perf_counter() - started, _cpu_s(bench.router) - before
        found[name] = {
            "per_core_s": round(sum(counts) / cpu_s, 1),
            "per_s": round(sum(counts) / wall_s, 1),
        }
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def _ask(bench: Bench, paths: Sequence[str], seconds: float) -> int:
    """Requests on one kept connection, one after another, for ``seconds``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port, limit=2**22)
    count, deadline = 0, time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        path = paths[count % len(paths)]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(size)
        count += 1
    writer.close()
    return count


async def measure_streams(bench: Bench, num_clients: int, num_events: int) -> dict[str, Any]:
    """Memory of the router while clients follow one job, and whether each got every event."""
    redis = await connect(bench.redis_url)
    log = EventLog(redis, JOB, source="bench")
    newest = (await log.read(count=10_000))[-1].id
    idle = bench.router.memory_info().rss
    clients = [asyncio.create_task(_follow(bench, newest, num_events)) for _ in range(num_clients)]
    lazy = [await _open_stream(bench, newest) for _ in range(10)]
    await _until_following(bench, num_clients)
    connected = bench.router.memory_info().rss
    resident: list[int] = []
    started, cpu = time.perf_counter(), _cpu_s(bench.router)
    for number in range(num_events):
        data = {"step": number, **{f"series_{i}": number * i for i in range(20)}}
        await log.emit("step.recorded", data)
        await asyncio.sleep(0.02)
        if number % 10 == 9:
            resident.append(bench.router.memory_info().rss)
    async with asyncio.timeout(300):
        got = await asyncio.gather(*clients)
    wall_s, cpu_s = time.perf_counter() - started, _cpu_s(bench.router) - cpu
    resident.append(bench.router.memory_info().rss)
    for _, writer in lazy:
        writer.close()
    await redis.aclose()
    half = resident[len(resident) // 2]
    return {
        "clients": num_clients,
        "lazy_clients": len(lazy),
        "events": num_events,
        "delivered": sum(got),
        "complete": all(count == num_events for count in got),
        "deliveries_per_s": round(sum(got) / wall_s),
        "deliveries_per_core_s": round(sum(got) / cpu_s),
        "idle_mib": round(idle / 2**20, 1),
        "connected_mib": round(connected / 2**20, 1),
        "half_mib": round(half / 2**20, 1),
        "end_mib": round(resident[-1] / 2**20, 1),
        "growth": round((resident[-1] - half) / half, 4),
    }


async def _open_stream(bench: Bench, after: str) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port, limit=2**20)
    request = (
        f"GET /v1/jobs/{JOB}/events HTTP/1.1\r\nHost: bench\r\n"
        f"Accept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n"
    )
    writer.write(request.encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return reader, writer


_following = 0


async def _follow(bench: Bench, after: str, num_events: int) -> int:
    """Events that one client got; it leaves after the last."""
    global _following
    reader, writer = await _open_stream(bench, after)
    _following += 1
    count = 0
    while count < num_events:
        line = await reader.readline()
        if not line:
            break
        count += line.startswith(b"id: ")
    writer.close()
    return count


async def _until_following(bench: Bench, num_clients: int) -> None:
    async with asyncio.timeout(120):
        while _following < num_clients:
            assert bench.router.is_running()
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


async def measure_first_event(bench: Bench, folder: Path, num_jobs: int) -> dict[str, Any]:
    """Seconds from sending a submission to its first event, and to its launch, over SSE."""
    firsts: list[float] = []
    launches: list[float] = []
    async with httpx.AsyncClient(base_url=bench.url, timeout=30.0, trust_env=False) as http:
        for _ in range(num_jobs):
            started = time.perf_counter()
            job = (await http.post("/v1/jobs", json=spec(folder))).json()
            path = f"/v1/jobs/{job['job_id']}/events"
            headers = {"Accept": "text/event-stream"}
            async with http.stream("GET", path, headers=headers) as stream:
                async for state in _states(stream):
                    if state == "queued":
                        firsts.append(time.perf_counter() - started)
                    if state == "launching":
                        launches.append(time.perf_counter() - started)
                        break
            await http.post(f"/v1/jobs/{job['job_id']}/cancel")
    return {
        "n": num_jobs,
        "first_event_s_p50": round(percentile(firsts, 0.5), 3),
        "first_event_s_max": round(max(firsts), 3),
        "launching_s_p50": round(percentile(launches, 0.5), 3),
        "launching_s_max": round(max(launches), 3),
    }


async def _states(stream: httpx.Response) -> AsyncIterator[str]:
    async for line in stream.aiter_lines():
        if line.startswith("data: "):
            yield str(json.loads(line[6:])["data"].get("state", ""))


async def measure(bench: Bench, folder: Path, *, quick: bool) -> dict[str, Any]:
    num_episodes = 10_000 if quick else 100_000
    async with httpx.AsyncClient(base_url=bench.url, timeout=30.0, trust_env=False) as http:
        answer = await http.post("/v1/jobs", json=spec(folder))
        assert answer.json()["job_id"] == JOB, answer.text
    await asyncio.to_thread(write_run, bench.runs_dir / JOB, num_episodes, 200 if quick else 1000)
    pages = await asyncio.to_thread(measure_pages, bench, num_episodes, 5 if quick else 20)
    print(f"pages: {pages}", file=sys.stderr)
    reads = await measure_reads(bench, 0.7 if quick else 3.0)
    print(f"reads: {reads}", file=sys.stderr)
    first = await measure_first_event(bench, folder, 3 if quick else 20)
    print(f"first event: {first}", file=sys.stderr)
    streams = await measure_streams(bench, 200 if quick else 1000, 100 if quick else 400)
    print(f"streams: {streams}", file=sys.stderr)
    return {"pages": pages, "reads": reads, "first_event": first, "streams": streams}


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    reads = found["reads"]["mixed"]["per_core_s"]
    page = found["pages"]["page_ms_max"]
    first = found["first_event"]["first_event_s_max"]
    growth = found["streams"]["growth"]
    is_flat = growth <= FLAT_SHARE and found["streams"]["complete"]
    return [
        goal("reads_per_core_s", reads, READS_PER_CORE, reads >= READS_PER_CORE),
        goal("episodes_page_ms_max", page, PAGE_MS, page <= PAGE_MS),
        goal("submit_to_first_event_s_max", first, FIRST_EVENT_S, first <= FIRST_EVENT_S),
        goal("sse_memory_growth", growth, FLAT_SHARE, is_flat),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    with tempfile.TemporaryDirectory() as name, running(Path(name)) as bench:
        found = asyncio.run(measure(bench, Path(name), quick=quick))
    document = {
        "benchmark": "api",
        "commit": commit(),
        "machine": machine(),
        "load_1min": round(os.getloadavg()[0], 1),
        "quick": quick,
        **found,
        "goals": goals(found),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
