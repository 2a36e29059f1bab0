"""Runs a part as a process of its own, with a limit, and reads its last line.

Owns the process and all that it started: when the limit has passed they are told to end, then
killed. Never raises for a part that failed.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu_suite.parts import Part
from benchmarks.record import last_line

ROOT = Path(__file__).parents[2]
GRACE_S = 30.0
"""For a part to end in order."""
LAST_S = 5.0
"""For what it leaves behind."""
TAIL = 12


def run(part: Part, command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """The part's line: its status, seconds, what it found and its goals."""
    began = time.monotonic()
    # A part that ends by itself needs a little more than it was told.
    most_s = limit_s + (GRACE_S if part.has_limit else 0.0)
    status, output = _output([sys.executable, "-m", *command], most_s)
    line: dict[str, Any] = {"part": part.name, "seconds": round(time.monotonic() - began, 1)}
    found = last_line(output)
    if status is None:
        return line | {"status": "out of time", "limit_s": round(limit_s), "goals": []}
    if status or "goals" not in found:
        tail = output.strip().splitlines()[-TAIL:]
        return line | {"status": "failed", "exit": status, "tail": tail, "goals": []}
    state = next((name for name in ("skipped", "unfinished") if name in found), "done")
    found = part.read(found)
    goals = found.pop("goals")
    return line | {"status": state, "goals": goals, "result": found}


def _output(command: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """Exit status (None: the limit passed) and what was printed, which is also shown."""
    kept: list[str] = []
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        reader = threading.Thread(target=_read, args=(child, kept), daemon=True)
        reader.start()
        try:
            status: int | None = child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(child)
        reader.join(timeout=GRACE_S)
    return status, "".join(kept)


def _read(child: "subprocess.Popen[str]", kept: list[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        kept.append(line)
        print("    " + line, end="", flush=True)


def _end(child: "subprocess.Popen[str]") -> None:
    """End the part in order, then what is left of all that it started."""
    try:
        started = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
    for process in (left := [one for one in started if one.is_running()]):
        process.terminate()
    for process in psutil.wait_procs(left, timeout=LAST_S)[1]:
        process.kill()
    with suppress(ProcessLookupError):  # what a part that ended by itself has left
        os.killpg(child.pid, signal.SIGKILL)
