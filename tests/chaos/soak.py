"""Train for long while something is killed each minute; what it costs, and whether anything grows.

``PYTHONPATH=tests:. python tests/chaos/soak.py --minutes 120``. Prints one JSON line last. One
platform, one job of Plan-Path on the ``cpu`` engine; each ``--every`` seconds the next of trainer,
rollout, env, router and Valkey is killed. Memory, files and stream entries are looked at between
the kills, each once its process has been up for a while.
"""

import argparse
import json
import os
import signal
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import mean, median
from typing import Any

import redis
from chaos_cases import COMPONENTS
from platform_world import Platform, make_tiny_base, run_platform, tiny_spec
from process_tree import adopting, descendants

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine, percentile
from troupe.clients.rest import TERMINAL
from troupe.errors import TroupeError

LOOK_S = 5.0
GROWTH = 1.15
"""A last third that is larger than the middle third by more than this has grown."""
WATCHED = ("stream_entries", "redis_keys", "redis_bytes", "router_rss_bytes", "weight_files")


@dataclass
class Soak:
    """One soak: what was killed, and what was seen in between."""

    platform: Platform
    job_id: str
    every_s: float
    kills: list[str] = field(default_factory=list[str])
    seen: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, until: float) -> str:
        """Kill and look until the job is over or ``until`` (monotonic); the job's last state."""
        victims: Iterator[str] = cycle(("trainer", "rollout", "env", "router", "redis"))
        kill_at = time.monotonic() + self.every_s
        state = ""
        while time.monotonic() < until and state not in TERMINAL:
            time.sleep(LOOK_S)
            self._look()
            if time.monotonic() >= kill_at:
                self._kill(next(victims))
                kill_at = time.monotonic() + self.every_s
            with suppress(TroupeError), self.platform.client(retry_for_s=60) as client:
                state = client.job(self.job_id).state
        return state

    def _kill(self, role: str) -> None:
        with suppress(OSError, TypeError, ValueError):
            os.kill(self.platform.pid_of(self.job_id, COMPONENTS[role]), signal.SIGKILL)
            self.kills.append(role)

    def _look(self) -> None:
        with suppress(redis.RedisError, OSError, TypeError, ValueError):
            now = {**self._redis(), **self._processes()}
            for name, value in now.items():
                self.seen[name].append(value)

    def _redis(self) -> dict[str, float]:
        port = int(self.platform.environment["TROUPE_REDIS_PORT"])
        with redis.Redis(port=port, socket_timeout=5) as client:
            streams = [
                key
                for key in client.scan_iter(count=1000)
                if client.type(key) == b"stream" and b"events" not in key
            ]
            entries = sum(int(client.xlen(key)) for key in streams)
            used: Any = client.info("memory")
            return {
                "stream_entries": entries,
                "redis_keys": int(client.dbsize()),
                "redis_bytes": int(used["used_memory"]),
            }

    def _processes(self) -> dict[str, float]:
        pid = self.platform.pid_of(self.job_id, "router")
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        published = self.platform.run_dir(self.job_id) / "publish"
        return {
            "router_rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
            "weight_files": sum(1 for _ in published.rglob("*.safetensors")),
        }


def growth(values: list[float]) -> float:
    """The mean of the last third over the mean of the middle third."""
    third = len(values) // 3
    if not third:
        return 1.0
    middle, last = mean(values[third : 2 * third]), mean(values[-third:])
    return round(last / middle, 3) if middle else 1.0


def steps_of(run_dir: Path) -> list[dict[str, Any]]:
    """Training lines of metrics.jsonl."""
    lines = [json.loads(x) for x in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "train"]


def effective_ratio(steps: list[dict[str, Any]]) -> float:
    """Time that the steps would have taken undisturbed over the time that they took."""
    quiet = [step["wall_s"] for step in steps if not step["interrupted"]]
    took = sum(step["wall_s"] for step in steps)
    return round(min(1.0, median(quiet) * len(steps) / took), 3) if quiet and took else 0.0


def report(soak: Soak, state: str, elapsed_s: float, strays: int) -> dict[str, Any]:
    """What the soak prints."""
    run_dir = soak.platform.run_dir(soak.job_id)
    steps = steps_of(run_dir)
    groups = [
        name
        for line in (run_dir / "groups.jsonl").read_text().splitlines()
        for name in json.loads(line)["group_ids"]
    ]
    walls = [step["wall_s"] for step in steps]
    ratio = effective_ratio(steps)
    grown = {name: growth(soak.seen[name]) for name in WATCHED}
    duplicated = len(groups) - len(set(groups))
    goals = [
        goal("effective_training_ratio", ratio, 0.9, ratio >= 0.9),
        goal("groups_duplicated", duplicated, 0, duplicated == 0),
        goal("stray_processes", strays, 0, strays == 0),
        *(goal(f"{name}_growth", x, GROWTH, x <= GROWTH) for name, x in grown.items()),
    ]
    return {
        "benchmark": "soak",
        "commit": commit(),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "state": state,
        "minutes": round(elapsed_s / 60, 1),
        "n": len(steps),
        "median": median(walls) if walls else None,
        "spread": [percentile(walls, 0.05), percentile(walls, 0.95)] if walls else None,
        "kills": {role: soak.kills.count(role) for role in dict.fromkeys(soak.kills)},
        "groups": len(set(groups)),
        "goals": goals,
    }


def num_strays(platform: Platform) -> int:
    """Processes below this one that are none of the platform's own, now that the job is over."""
    own = {platform.pid_of("", name) for name in ("router", "redis")}
    supervisor = platform.folder / "runs" / ".troupe" / "supervisor.json"
    own.add(int(json.loads(supervisor.read_text())["pid"]))
    return len(descendants(os.getpid()) - own)


def free_port() -> int:
    """A free TCP port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Soak as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between kills")
    asked = parser.parse_args()
    clean_up_on_sigterm()
    with tempfile.TemporaryDirectory() as folder, adopting():
        spec = tiny_spec(make_tiny_base(Path(folder) / "tiny"))
        spec |= {"steps": asked.steps, "eval": {"num_tasks": 0}}
        home = Path(folder) / "platform"
        home.mkdir()
        with run_platform(home, free_port, {}) as platform:
            with platform.client() as client:
                job_id = client.submit(spec).job_id
            began = time.monotonic()
            soak = Soak(platform, job_id, asked.every)
            state = soak.run(began + asked.minutes * 60)
            elapsed_s = time.monotonic() - began
            with platform.client(retry_for_s=120) as client:
                if client.job(job_id).state not in TERMINAL:
                    client.cancel(job_id)
                    for _ in client.events(job_id):
                        pass
            found = report(soak, state, elapsed_s, num_strays(platform))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
