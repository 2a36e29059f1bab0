"""The whole system as processes: a made-here base model and a platform in a folder of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troupe.clients.rest import RestClient

TINY = {
    "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128},
    "--params": {"max_actions": 3},
    "--warm-start": {"num_careful_steps": 250, "num_careless_steps": 50, "batch_size": 32},
}
PLATFORM = ("router", "redis")
"""Components of the platform; every other one is a job's."""


def until(condition: Callable[[], Any], timeout_s: float = 240.0) -> Any:
    """What ``condition`` gives once that is true; fails when it is not in time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.1)
    return found


@dataclass(frozen=True)
class Platform:
    """A running ``troupe up``."""

    folder: Path
    rest_port: int
    environment: dict[str, str]

    def troupe(self, *args: str, timeout_s: float = 170) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "troupe.cli", *args],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def client(self, *, retry_for_s: float = 60) -> RestClient:
        return RestClient(f"http://127.0.0.1:{self.rest_port}", retry_for_s=retry_for_s)

    def run_dir(self, job_id: str) -> Path:
        return self.folder / "runs" / job_id

    def pid_of(self, job_id: str, component: str) -> int:
        """The recorded process; raises FileNotFoundError or TypeError while there is none."""
        owner = ".troupe/platform" if component in PLATFORM else job_id
        record = self.folder / "runs" / owner / "procs" / f"{component}.json"
        return int(json.loads(record.read_text())["pid"])


def make_tiny_base(folder: Path, **shape: int) -> Path:
    """A base model of a few thousand parameters that has seen a few demonstrations; made once."""
    if (folder / "config.json").is_file():
        return folder
    recipe = {**TINY, "--shape": {**TINY["--shape"], **shape}}
    options = [text for key, value in recipe.items() for text in (key, json.dumps(value))]
    command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--task", "plan_path"]
    done = subprocess.run(
        [*command, "--size", "4", "--seed", "1", *options, "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def start_platform(
    folder: Path, free_port: Callable[[], int], more: Mapping[str, str]
) -> Iterator[Platform]:
    """A platform of its own in ``folder``, with ``more`` in its environment.

    A port that was free may be taken by another process before it is bound; then others are tried.
    """
    for attempt in range(3):
        ports = {name: free_port() for name in ("REST", "GRPC", "ADMIN", "REDIS")}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
        environment |= {f"TROUPE_{name}_PORT": str(port) for name, port in ports.items()}
        found = Platform(folder, ports["REST"], environment | dict(more))
        started = found.troupe("up")
        if started.returncode == 0 or "already in use" not in started.stderr or attempt == 2:
            break
        found.troupe("down")
    assert started.returncode == 0, started.stderr
    try:
        yield found
    finally:
        ended = found.troupe("down")
    assert ended.returncode == 0, ended.stderr


run_platform = contextmanager(start_platform)
"""``start_platform`` for a with statement."""


def tiny_spec(base: Path) -> dict[str, Any]:
    """A job of seconds: the real algorithm on 4x4 grids."""
    return {
        "name": "tiny",
        "seed": 5,
        "steps": 3,
        "tasks_per_step": 6,
        "task": {"name": "plan_path", "params": {"size": 4, "max_actions": 3}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 3},
        "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
        "policies": {
            "shared": {
                "model": str(base),
                "train": {"kind": "lora", "rank": 4, "alpha": 8},
                "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
            }
        },
        "algorithm": {"kind": "at_grpo", "group_size": 4},
        "sampling": {"max_new_tokens": 6},
        "eval": {"num_tasks": 12},
    }


def trained_groups(run_dir: Path) -> list[tuple[int, list[str]]]:
    """(step, group ids without the job's name) of every trained step, as the trainer recorded."""
    lines = [json.loads(line) for line in (run_dir / "groups.jsonl").read_text().splitlines()]
    mark = f"{run_dir.name}/"
    return [(x["step"], [name.removeprefix(mark) for name in x["group_ids"]]) for x in lines]


def trained_bytes(run_dir: Path) -> bytes:
    """The trained weights of the policy ``shared``: its adapter, or all of them."""
    exports = run_dir / "policies" / "shared"
    adapter = exports / "adapter" / "adapter_model.safetensors"
    path = adapter if adapter.exists() else exports / "merged" / "model.safetensors"
    return path.read_bytes()
