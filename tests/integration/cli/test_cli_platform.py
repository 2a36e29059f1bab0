"""``troupe up``, ``status`` and ``down`` with the real supervisor, Valkey and router."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from troupe.launch.processes import ProcessId, identify, look

Troupe = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def troupe(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Troupe]:
    """Runs the command in an empty folder, on ports of its own."""
    ports = {f"TROUPE_{n}_PORT": str(free_port()) for n in ("REST", "GRPC", "ADMIN", "REDIS")}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}

    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "troupe.cli", *args],
            cwd=tmp_path,
            env={**inherited, **ports},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    yield run
    run("down")


def _status(troupe: Troupe) -> dict[str, Any]:
    return json.loads(troupe("status", "--json").stdout)


def _pid(status: dict[str, Any], name: str) -> int | None:
    return next((p["pid"] for p in status["processes"] if p["name"] == name), None)


def _alive(processes: list[ProcessId]) -> list[ProcessId]:
    return [process for process in processes if look(process).is_alive]


def _until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.1)
    return found


def test_platform_when_up_then_answers_and_down_leaves_no_process(
    troupe: Troupe, tmp_path: Path
) -> None:
    started = troupe("up")
    assert started.returncode == 0, started.stderr
    assert "already up" in troupe("up").stdout

    status = _status(troupe)
    assert status["is_ready"]
    pids = [status["supervisor_pid"], _pid(status, "redis"), _pid(status, "router")]
    living = [identity for pid in pids if (identity := identify(pid))]
    assert len(living) == 3
    assert troupe("jobs", "--json").stdout.strip() == "[]"

    assert troupe("down").returncode == 0
    assert _alive(living) == []
    assert troupe("status").returncode == 1
    assert (tmp_path / "runs" / ".troupe" / "platform" / "logs" / "router.log").is_file()


def test_platform_when_its_processes_are_killed_then_they_come_back(troupe: Troupe) -> None:
    assert troupe("up").returncode == 0
    before = _status(troupe)
    for name in ("redis", "router"):
        os.kill(_pid(before, name) or 0, signal.SIGKILL)

    def is_back() -> bool:
        now = _status(troupe)
        return now["is_ready"] and all(
            _pid(now, name) not in (None, _pid(before, name)) for name in ("redis", "router")
        )

    _until(is_back)


def test_platform_when_the_supervisor_is_killed_then_down_still_ends_everything(
    troupe: Troupe,
) -> None:
    assert troupe("up").returncode == 0
    status = _status(troupe)
    living = [i for name in ("redis", "router") if (i := identify(_pid(status, name) or 0))]
    assert len(_alive(living)) == 2
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    _until(lambda: not _status(troupe)["is_up"])

    assert troupe("down").returncode == 0
    assert _alive(living) == []


def test_submit_when_the_spec_is_wrong_for_the_router_then_exits_2_with_the_pointer(
    troupe: Troupe,
) -> None:
    example = Path(__file__).parents[3] / "examples" / "demo.yaml"
    assert troupe("up").returncode == 0
    rest = _status(troupe)["rest_url"]
    override = "policies.shared.model=/no/such/model"
    refused = troupe("submit", str(example), "--set", override, "--url", rest)
    assert refused.returncode == 2
    assert "/policies/shared/model" in refused.stderr
    assert troupe("watch", "none-1").returncode == 2
