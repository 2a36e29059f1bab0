"""A real router with its Valkey as processes, and the job that is looked at."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from troupe.runtime.streams import embedded

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
def running(folder: Path, *, launcher: str = "none") -> Iterator[Bench]:
    """Valkey and the router as processes; ``launcher`` "local" runs what jobs need."""
    folder.mkdir(exist_ok=True)
    redis_port, rest_port = free_port(), free_port()
    url = embedded.url(redis_port)
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TROUPE_ROUTER_REST_ADDRESS": f"127.0.0.1:{rest_port}",
        "TROUPE_ROUTER_GRPC_ADDRESS": "127.0.0.1:0",
        "TROUPE_ROUTER_REDIS_URL": url,
        "TROUPE_ROUTER_RUNS_DIR": str(folder / "runs"),
        "TROUPE_ROUTER_LAUNCHER": launcher,
        "TROUPE_ROUTER_LOG_LEVEL": "warning",
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    argv = embedded.server_argv(redis_port, folder, fsync="no")
    valkey = subprocess.Popen(argv, **quiet)
    router = subprocess.Popen(
        [sys.executable, "-m", "troupe_router"], env=env, stdout=subprocess.DEVNULL
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
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def _is_up(base: str) -> bool:
    try:
        return httpx.get(f"{base}/readyz", timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def spec(model: Path) -> dict[str, Any]:
    """A job on ``model`` that takes longer than any measurement."""
    return {
        "name": "api",
        "steps": 1000,
        "tasks_per_step": 100,
        "task": {"name": "plan_path", "params": {"size": 6}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 4},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": str(model)}},
        "sampling": {"max_new_tokens": 32},
        "limits": {"startup_timeout_s": 3600},
    }


def empty_model(folder: Path) -> Path:
    """A model folder that the router accepts and nothing loads."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    return folder


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds of ``process`` so far."""
    times = process.cpu_times()
    return times.user + times.system
