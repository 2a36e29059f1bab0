"""The host that attacks aim at, and the sandbox that must keep it."""

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest
from sandbox_here import skip_or_fail
from watched_host import SECRET, TALLY, WatchedHost, bait, mounts

from troupe.errors import InvalidArgumentError
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sandbox-full", action="store_true", help="1,000 honest runs afterwards")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY:
        escapes = sum(not is_contained for is_contained in TALLY.values())
        terminalreporter.write_line(f"attacks tried: {len(TALLY)}, escapes: {escapes}")


@pytest.fixture(scope="session")
def watched_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedHost]:
    folder = tmp_path_factory.mktemp("host")
    servers = bait(folder)
    victim = subprocess.Popen(["sleep", "600"])
    os.environ["TROUPE_TEST_SECRET"] = SECRET
    yield WatchedHost(folder, victim, servers, mounts(folder))
    del os.environ["TROUPE_TEST_SECRET"]
    victim.kill()
    victim.wait()
    for server in servers.values():
        server.close()


@pytest.fixture(scope="module")
def sandbox(watched_host: WatchedHost) -> Iterator[LocalSandbox]:
    """One sandbox for all attacks, so that each may try to spoil it for those that follow."""
    with (watched_host.folder / "open").open("w") as leak:
        os.set_inheritable(leak.fileno(), True)
        threads = threading.active_count()
        try:
            opened = open_sandbox(SandboxSettings(level="namespaces", workers=2))
        except InvalidArgumentError as error:
            skip_or_fail(error)
        yield opened
        opened.close()
        assert threading.active_count() == threads
