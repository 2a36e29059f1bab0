"""The whole system as processes: a made-here base model and a platform of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from troupe.clients.rest import RestClient

TINY = {
    "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128},
    "--params": {"max_actions": 3},
    "--warm-start": {"num_careful_steps": 250, "num_careless_steps": 50, "batch_size": 32},
}


@dataclass(frozen=True)
class Platform:
    """A running ``troupe up`` in an empty folder."""

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

    def client(self) -> RestClient:
        return RestClient(f"http://127.0.0.1:{self.rest_port}", retry_for_s=60)

    def run_dir(self, job_id: str) -> Path:
        return self.folder / "runs" / job_id

    def pid_of(self, job_id: str, component: str) -> int:
        owner = "platform" if component in ("router", "redis") else job_id
        home = self.folder / "runs" / (".troupe/platform" if owner == "platform" else owner)
        return json.loads((home / "procs" / f"{component}.json").read_text())["pid"]


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of a few thousand parameters that has seen a few demonstrations."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    options = [text for key, value in TINY.items() for text in (key, json.dumps(value))]
    command = [sys.executable, "-m", "services.trainer.tiny_model", "--task", "plan_path"]
    done = subprocess.run(
        [*command, "--size", "4", "--seed", "1", *options, "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, free_port: Any) -> Iterator[Platform]:
    """Redis and the router by ``troupe up``, ended by ``troupe down``."""
    yield from start_platform(tmp_path_factory.mktemp("platform"), free_port, {})


def start_platform(folder: Path, free_port: Any, more: dict[str, str]) -> Iterator[Platform]:
    """A platform of its own in ``folder``, with ``more`` in its environment."""
    ports = {name: free_port() for name in ("REST", "GRPC", "ADMIN", "REDIS")}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    environment |= {f"TROUPE_{name}_PORT": str(port) for name, port in ports.items()}
    found = Platform(folder, ports["REST"], environment | more)
    started = found.troupe("up")
    assert started.returncode == 0, started.stderr
    yield found
    assert found.troupe("down").returncode == 0


@pytest.fixture(scope="session")
def spec(tiny_base: Path) -> dict[str, Any]:
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
                "model": str(tiny_base),
                "train": {"kind": "lora", "rank": 4, "alpha": 8},
                "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
            }
        },
        "algorithm": {"kind": "at_grpo", "group_size": 4},
        "sampling": {"max_new_tokens": 6},
        "eval": {"num_tasks": 12},
    }
