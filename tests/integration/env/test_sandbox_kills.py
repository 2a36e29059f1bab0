"""Whatever is killed, the service, a worker or what is below it, nothing of a sandbox goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from troupe.errors import InvalidArgumentError
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.settings import SandboxSettings

_SERVICE = """
import sys, threading
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings
level, mark = sys.argv[1:]
settings = SandboxSettings(level=level, workers=2, python="/usr/bin/python3", shown_paths=[mark])
sandbox = LocalSandbox(settings, level)
programs = [
    "while True: pass",
    "import os, time\\nfor _ in range(3):\\n    if os.fork() == 0:\\n        os.setsid()\\n"
    "        if os.fork(): os._exit(0)\\n        while True: time.sleep(0.01)\\ntime.sleep(0.2)",
    "import ctypes, os, time\\nfor _ in range(3):\\n    if os.fork() == 0: os.setsid()\\n"
    "ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\\nwhile True: time.sleep(0.01)",
    "print(1)",
]
def serve(first):
    number = first
    while True:
        number += 1
        limits = Limits(wall_time_s=[0.05, 0.5, 5.0][number % 3], cpu_time_s=9.0, num_processes=32)
        try:
            sandbox.run(Program(programs[number % 4]), limits)
        except Exception:
            pass
for first in range(3):
    threading.Thread(target=serve, args=(first,), daemon=True).start()
print("up", flush=True)
threading.Event().wait(60)
"""
_GONE_S = 10.0
_ROUNDS = 2


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="programs run by /usr/bin/python3"
)
@pytest.mark.parametrize("killed", ["the service", "top", "second", "third", "any three"])
@pytest.mark.parametrize("level", ["namespaces", "process"])
def test_sandbox_when_any_of_its_processes_is_killed_with_the_service_then_none_is_left(
    level: str, killed: str, tmp_path: Path
) -> None:
    _skip_where_impossible(level)
    os.chmod(tmp_path, 0o755)  # noqa: PTH101 (programs of another user look at it)
    mark, rng = str(tmp_path), random.Random(f"{level}/{killed}")
    for _ in range(_ROUNDS):
        service = subprocess.Popen(
            [sys.executable, "-c", _SERVICE, level, mark],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert service.stdout is not None
            service.stdout.readline()
            _await(lambda service=service: len(_marked(mark, service.pid)) >= 4)
            time.sleep(rng.random())
            _kill(_chosen(killed, _marked(mark, service.pid), service.pid, rng))
            time.sleep(rng.random() * 0.2)
        finally:
            service.kill()
            service.wait()
            service.stdout.close()
        try:
            _await(lambda service=service: not _marked(mark, service.pid))
        finally:
            _kill(list(_marked(mark, service.pid)))


def _skip_where_impossible(level: str) -> None:
    try:
        settings = SandboxSettings(level=level, workers=1, python="/usr/bin/python3")  # type: ignore[arg-type]
        open_sandbox(settings).close()
    except InvalidArgumentError as error:
        pytest.skip(error.message)


def _marked(mark: str, service: int) -> dict[int, int]:
    """Living processes of the sandbox and their parents; the mark is in their start lines."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in (os.getpid(), service):
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if mark.encode() in line and state != "Z":
            parents[int(folder.name)] = int(parent)
    return parents


def _chosen(killed: str, parents: dict[int, int], service: int, rng: random.Random) -> list[int]:
    generations = [[pid for pid, parent in parents.items() if parent == service]]
    for _ in range(2):
        above = generations[-1]
        generations.append([pid for pid, parent in parents.items() if parent in above])
    if killed == "any three":
        return rng.sample(sorted(parents), 3)
    order = ["top", "second", "third"]
    return generations[order.index(killed)] if killed in order else []


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _await(is_so) -> None:
    deadline = time.monotonic() + _GONE_S
    while not is_so():
        assert time.monotonic() < deadline, "processes of a sandbox go on, or none came up"
        time.sleep(0.02)
