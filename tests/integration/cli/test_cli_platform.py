"""``troupe up``, ``status`` and ``down`` with the real supervisor, Valkey and router."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platform_world import until

from troupe.cli import platform
from troupe.cli.platform_record import PlatformConfig
from troupe.cli.settings import CliSettings
from troupe.errors import UnavailableError
from troupe.runtime.launch.launcher import Component
from troupe.runtime.launch.local import LocalLauncher
from troupe.runtime.launch.processes import ProcessId, identify, look
from troupe.runtime.tls.certificates import Authority

Troupe = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def troupe(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Troupe]:
    """Runs the command in an empty folder, on ports of its own."""
    ports = {f"TROUPE_{n}_PORT": str(free_port()) for n in ("REST", "GRPC", "ADMIN", "REDIS")}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    ports["TROUPE_GRACE_S"] = "4"

    def run(*args: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "troupe.cli", *args],
            cwd=tmp_path,
            env={**inherited, **ports, **more},
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


def test_up_when_the_router_asks_for_a_key_and_there_is_none_then_starts_and_says_so(
    troupe: Troupe, tmp_path: Path
) -> None:
    keys = str(tmp_path / "keys.json")
    added = troupe("keys", "add", "me", "--file", keys)
    assert added.returncode == 0, added.stderr
    up = troupe("up", TROUPE_ROUTER_API_KEYS=keys)
    assert up.returncode == 0, up.stderr
    assert "TROUPE_API_KEY" in up.stderr


def test_platform_when_the_router_has_a_certificate_then_speaks_https(
    troupe: Troupe, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates")
    Authority.create().issue(["router"], tmp_path, hosts=["127.0.0.1"])
    names = {"CERTIFICATE": "tls.crt", "KEY": "tls.key"}
    tls = {f"TROUPE_ROUTER_TLS_{k}": str(tmp_path / v) for k, v in names.items()}
    distrusted = troupe("up", **tls)
    assert distrusted.returncode != 0
    assert "TROUPE_REST_CA" in distrusted.stderr
    assert troupe("status").returncode == 1

    started = troupe("up", **tls, TROUPE_REST_CA="ca.crt")
    assert (started.returncode, "https://127.0.0.1" in started.stdout) == (0, True), started.stderr
    assert _status(troupe)["is_ready"]
    assert troupe("jobs", "--json").stdout.strip() == "[]"


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

    until(is_back)


def test_platform_when_the_supervisor_is_killed_then_up_mends_and_down_ends_everything(
    troupe: Troupe,
) -> None:
    assert troupe("up").returncode == 0
    status = _status(troupe)
    living = [i for name in ("redis", "router") if (i := identify(_pid(status, name) or 0))]
    assert len(_alive(living)) == 2
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: not _status(troupe)["is_up"])
    os.kill(_pid(status, "router") or 0, signal.SIGKILL)

    assert troupe("up").returncode == 0
    again = _status(troupe)
    assert again["is_ready"]
    assert _pid(again, "router") != _pid(status, "router")
    living += [i for name in ("redis", "router") if (i := identify(_pid(again, name) or 0))]
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


def _sleeper(folder: Path) -> tuple[list[ProcessId], Callable[[], None]]:
    """A job process that ignores SIGTERM, and its child; they belong to run folder ``fake-1``."""
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    component = Component("sleeper-0", "", argv=(sys.executable, "-c", code))
    launcher = LocalLauncher(folder / "runs")
    (status,) = asyncio.run(launcher.reconcile("fake-1", [component]))
    log = folder / "runs" / "fake-1" / "logs" / "sleeper-0.log"
    child = int(until(log.read_text))
    found = [i for pid in (status.pid, child) if pid and (i := identify(pid))]
    assert len(found) == 2
    return found, lambda: asyncio.run(launcher.stop("fake-1", grace_s=0.1))


@pytest.mark.parametrize("how", ["down", "down without a record", "up, then down"])
def test_job_processes_when_supervisor_and_router_are_killed_then_down_ends_them(
    troupe: Troupe, tmp_path: Path, how: str
) -> None:
    assert troupe("up").returncode == 0
    orphans, clean_up = _sleeper(tmp_path)
    try:
        status = _status(troupe)
        living = [i for name in ("redis", "router") if (i := identify(_pid(status, name) or 0))]
        os.kill(status["supervisor_pid"], signal.SIGKILL)
        os.kill(_pid(status, "router") or 0, signal.SIGKILL)
        if how == "down without a record":
            (tmp_path / "runs/.troupe/supervisor.json").unlink()
        if how == "up, then down":
            assert troupe("up").returncode == 0
            assert _status(troupe)["is_ready"]
        ended = troupe("down")
        assert (ended.returncode, ended.stdout.strip()) == (0, "stopped"), ended.stderr
        assert _alive(orphans + living) == []
    finally:
        clean_up()


def test_up_when_an_earlier_supervisor_is_still_stopping_then_waits_and_starts_its_own(
    troupe: Troupe, tmp_path: Path
) -> None:
    assert troupe("up").returncode == 0
    first = _status(troupe)["supervisor_pid"]
    _, clean_up = _sleeper(tmp_path)  # it ignores SIGTERM, so that stopping takes its whole grace
    try:
        os.kill(first, signal.SIGTERM)
        log = tmp_path / "runs/.troupe/supervisor.log"
        until(lambda: "stopping" in log.read_text())
        assert identify(first) is not None
        started = troupe("up")
        assert started.returncode == 0, started.stderr
        assert started.stdout.startswith("started")
        now = _status(troupe)
        assert now["is_ready"]
        assert now["supervisor_pid"] != first
    finally:
        clean_up()


def test_up_when_the_router_cannot_take_its_port_then_says_so_at_once(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "check_ports", lambda _: None)
    ports = {f"{name}_port": free_port() for name in ("rest", "admin", "redis")}
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = CliSettings(runs_dir=tmp_path / "runs", grpc_port=port, **ports)
        with pytest.raises(UnavailableError, match=f"router.*status 3.*127.0.0.1:{port}"):
            platform.up(settings)
    assert time.monotonic() - began < 40
    left = [r for records in platform.processes(tmp_path / "runs").values() for r in records]
    assert left == []


def test_up_when_the_supervisor_dies_meanwhile_then_says_so_at_once(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {f"{n}_port": free_port() for n in ("rest", "grpc", "admin", "redis")}
    start = platform._start_supervisor

    def start_and_kill(config: platform.PlatformConfig) -> "subprocess.Popen[bytes]":
        child = start(config)
        child.kill()
        return child

    monkeypatch.setattr(platform, "_start_supervisor", start_and_kill)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="supervisor ended with status -9"):
        platform.up(CliSettings(runs_dir=tmp_path / "runs", **ports))
    assert time.monotonic() - began < 20


def test_supervisor_when_redis_has_a_password_then_no_other_user_sees_it(
    troupe: Troupe, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    ports = {f"{n}_port": free_port() for n in ("rest", "grpc", "admin")}
    url = f"redis://:s3cret@127.0.0.1:{free_port()}/0"
    config = PlatformConfig.of(CliSettings(runs_dir=tmp_path / "runs", redis_url=url, **ports))
    supervisor = platform._start_supervisor(config)
    record = config.state_dir / "supervisor.json"
    until(record.exists)
    command = Path(f"/proc/{supervisor.pid}/cmdline").read_text()
    assert "s3cret" not in command and str(config.runs_dir) in command
    assert record.stat().st_mode & 0o077 == 0
    status = troupe("status", "--json").stdout
    assert json.loads(status)["redis_url"] == url.replace("s3cret", "***")
    assert "s3cret" not in status + troupe("status").stdout
