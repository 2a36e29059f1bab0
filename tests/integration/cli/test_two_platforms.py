"""Two platforms on one machine: ports are found, counted from a base, or refused in words."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from troupe.cli import checks
from troupe.cli.settings import SERVE_PORT, settings_from
from troupe.errors import InvalidArgumentError
from troupe_router.serve.settings import ServeSettings

pytestmark = pytest.mark.timeout(600)
Troupe = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def troupe(tmp_path: Path) -> Iterator[Troupe]:
    """Runs the command with no port in its environment; ends the platforms of runs folders."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    environment |= {"TROUPE_GRACE_S": "4", "TROUPE_START_TIMEOUT_S": "150"}

    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "troupe.cli", *args],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )

    yield run
    for folder in tmp_path.iterdir():
        if (folder / ".troupe").is_dir():
            run("down", "--runs-dir", folder.name)


@pytest.fixture
def base() -> int:
    """The first of fourteen free ports; each test session begins its search elsewhere."""
    places = range(21_000, 30_000, 20)
    begin = os.getpid() % len(places)
    for first in (*places[begin:], *places[:begin]):
        if all(_is_free(port) for port in range(first, first + 14)):
            return first
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _record(folder: Path) -> Any:
    return json.loads((folder / ".troupe" / "supervisor.json").read_text())


def test_two_platforms_when_ports_are_auto_or_from_a_base_then_both_serve_at_once(
    troupe: Troupe, tmp_path: Path, base: int
) -> None:
    first = troupe("up", "--runs-dir", "one", "--port-base", str(base))
    assert first.returncode == 0, first.stderr
    refused = troupe("up", "--runs-dir", "two", "--port-base", str(base))
    assert refused.returncode == 2
    for words in (f"Port {base}", "--rest-port", "--port-base", "--ports auto"):
        assert words in refused.stderr
    second = troupe("up", "--runs-dir", "two", "--port-base", str(base), "--ports", "auto")
    assert second.returncode == 0, second.stderr
    again = troupe("up", "--runs-dir", "two", "--ports", "auto", "--json")
    assert not json.loads(again.stdout)["is_new"]

    names = ("rest_port", "grpc_port", "admin_port", "redis_port")
    one, two = ([_record(tmp_path / folder)[n] for n in names] for folder in ("one", "two"))
    assert one == [base, base + 1, base + 2, base + 3]
    assert not set(one) & set(two)
    for folder, ports in (("one", one), ("two", two)):
        status = json.loads(troupe("status", "--runs-dir", folder, "--json").stdout)
        assert status["is_ready"]
        assert status["rest_url"].endswith(f":{ports[0]}")
        assert troupe("jobs", "--runs-dir", folder).stdout.strip() == "no jobs"
    assert troupe("down", "--runs-dir", "one").returncode == 0
    assert json.loads(troupe("status", "--runs-dir", "two", "--json").stdout)["is_ready"]


@pytest.mark.parametrize("taken", range(4))
def test_auto_when_any_of_the_four_is_taken_then_it_takes_the_next_free_four(
    base: int, taken: int
) -> None:
    settings = settings_from(port_base=base, ports="auto")
    with checks.free_ports(settings) as found:
        assert found == settings
    with socket.socket() as other:
        other.bind(("127.0.0.1", base + taken))
        other.listen()
        with checks.free_ports(settings) as found:
            pass
    assert list(found.needed_ports().values()) == [base + 10 + place for place in range(4)]


def test_auto_when_another_platform_is_about_to_begin_then_its_ports_are_left_to_it(
    base: int,
) -> None:
    settings = settings_from(port_base=base, ports="auto")
    with checks.free_ports(settings) as first, checks.free_ports(settings) as second:
        assert first == settings
        assert second.rest_port == base + 10
    with checks.free_ports(settings) as found:
        assert found == settings


def test_auto_when_the_next_place_has_the_port_of_serve_then_it_is_left_to_it(
    base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SERVE_PORT", base + 10)
    with socket.socket() as other:
        other.bind(("127.0.0.1", base))
        other.listen()
        with checks.free_ports(settings_from(port_base=base, ports="auto")) as found:
            pass
    assert base + 10 not in found.needed_ports().values()
    assert f":{SERVE_PORT}" in ServeSettings.model_fields["rest_address"].default


def test_base_when_some_ports_are_named_then_these_win_and_wrong_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TROUPE_PORT_BASE", "9000")
    monkeypatch.setenv("TROUPE_GRPC_PORT", "7000")
    found = settings_from(redis_port=7001)
    assert found.needed_ports() == {"rest": 9000, "grpc": 7000, "admin": 9002, "redis": 7001}
    for wrong in ("0", "65533", "many", "-4"):
        monkeypatch.setenv("TROUPE_PORT_BASE", wrong)
        with pytest.raises(InvalidArgumentError, match="PORT_BASE"):
            settings_from()
    monkeypatch.delenv("TROUPE_PORT_BASE")
    with pytest.raises(InvalidArgumentError, match="PORTS"):
        settings_from(ports="any")
