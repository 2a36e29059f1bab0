"""What a soak looks at between two kills, and whether any of it grows.

Owns the samples. Every process is killed in its turn, so its memory and its file descriptors are
compared within each life: what a life has at its end beside what it had when it was warm.
"""

import os
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import httpx
import redis
from chaos_cases import COMPONENTS
from platform_world import Platform

GROWTH = 1.15
"""What is larger by more than this has grown."""
WARM_S = 60.0
"""A process is compared with what it was at this age: all is loaded, its pools are filled."""
SHARED = ("stream_entries", "redis_keys", "redis_bytes", "weight_files", "checkpoints", "scratch")
"""Looked at over the whole soak."""


@dataclass
class Life:
    """One process from its first look to its last: (age in seconds, RSS in bytes, open files)."""

    role: str
    began: float
    looks: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])

    def growth(self, column: int) -> float | None:
        """The last look over the first warm one; None of a life that was too short."""
        warm = [look for look in self.looks if look[0] >= WARM_S]
        if len(warm) < 3:
            return None
        return warm[-1][column] / max(1, warm[0][column])


@dataclass
class Watch:
    """The samples of one soak."""

    platform: Platform
    job_id: str
    scratch: Path
    shared: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    lives: dict[int, Life] = field(default_factory=dict[int, Life])
    loaded_versions: int = 0

    def look(self) -> None:
        """Take a sample of whatever is there; what was just killed is left out."""
        gone = (redis.RedisError, httpx.HTTPError, OSError, TypeError, ValueError, KeyError)
        with suppress(*gone):
            for name, value in {**self._redis(), **self._files()}.items():
                self.shared[name].append(value)
        for role, component in COMPONENTS.items():
            with suppress(*gone):
                self._process(role, self.platform.pid_of(self.job_id, component))
        with suppress(*gone):
            self._replicas()

    def growths(self) -> dict[str, float]:
        """Each thing's growth: shared ones by thirds, processes by the mean of their lives."""
        found = {name: growth(self.shared[name]) for name in SHARED}
        for column, what in ((1, "rss"), (2, "open_files")):
            for role in COMPONENTS:
                lives = [x.growth(column) for x in self.lives.values() if x.role == role]
                known = [x for x in lives if x is not None]
                if known:
                    found[f"{role}_{what}"] = round(mean(known), 3)
        return found

    def keys_left(self) -> list[str]:
        """Redis keys that only a job at work needs."""
        stay = (":job", ":events", ":event-ids", ":ledger", ":epochs")
        with self._client() as client:
            names = [key.decode() for key in client.scan_iter(f"*{{{self.job_id}}}*", count=1000)]
        return sorted(name for name in names if not name.endswith(stay))

    def _client(self) -> redis.Redis:
        port = int(self.platform.environment["TROUPE_REDIS_PORT"])
        return redis.Redis(port=port, socket_timeout=5)

    def _redis(self) -> dict[str, float]:
        """A round's own hash stays until its job ends; every other key has its end."""
        with self._client() as client:
            keys = [key for key in client.scan_iter(count=1000) if b":round:" not in key]
            streams = [k for k in keys if client.type(k) == b"stream" and b"events" not in k]
            used: Any = client.info("memory")
            return {
                "stream_entries": sum(int(client.xlen(key)) for key in streams),
                "redis_keys": len(keys),
                "redis_bytes": int(used["used_memory"]),
            }

    def _files(self) -> dict[str, float]:
        run_dir = self.platform.run_dir(self.job_id)
        return {
            "weight_files": sum(1 for _ in (run_dir / "publish").rglob("*.safetensors")),
            "checkpoints": sum(1 for _ in (run_dir / "checkpoints").iterdir()),
            "scratch": sum(1 for _ in self.scratch.rglob("*")),
        }

    def _process(self, role: str, pid: int) -> None:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        if not pages:  # it is ending
            return
        life = self.lives.setdefault(pid, Life(role, time.monotonic()))
        age_s = time.monotonic() - life.began
        life.looks.append((age_s, pages * os.sysconf("SC_PAGE_SIZE"), files))

    def _replicas(self) -> None:
        url = f"http://127.0.0.1:{self.platform.rest_port}/v1/replicas"
        found = httpx.get(url, params={"job_id": self.job_id}, timeout=5).json()["replicas"]
        held = [len(p["loaded_versions"]) for replica in found for p in replica["policies"]]
        self.loaded_versions = max(self.loaded_versions, *held, 0)


def growth(values: list[float]) -> float:
    """The mean of the last third over the mean of the middle third."""
    third = len(values) // 3
    if not third:
        return 1.0
    middle, last = mean(values[third : 2 * third]), mean(values[-third:])
    return round(last / middle, 3) if middle else 1.0
