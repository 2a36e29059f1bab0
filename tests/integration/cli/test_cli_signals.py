"""Commands that are terminated end as with Ctrl-C, and so does what they started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from troupe.runtime.launch.processes import identify, look

pytestmark = pytest.mark.timeout(120)


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    by = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < by, "it did not happen in time"
        time.sleep(0.02)


def test_model_tiny_when_terminated_then_130_and_its_maker_has_ended(tmp_path: Path) -> None:
    slow = ["--warm-start", '{"num_careful_steps": 100000}', "--out", str(tmp_path / "tiny")]
    process = subprocess.Popen(
        [sys.executable, "-m", "troupe.cli", "model", "tiny", "--task", "plan_path", *slow],
        start_new_session=True,
    )
    try:
        until(lambda: children(process.pid))
        [maker] = (found for pid in children(process.pid) if (found := identify(pid)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        until(lambda: not look(maker).is_alive)  # killed before; its memory may still be freed
        assert not (tmp_path / "tiny").exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
