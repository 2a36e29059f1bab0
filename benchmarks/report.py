"""The header that every benchmark prints about itself."""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def commit() -> str:
    """The commit that was measured."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def machine() -> str:
    """Processor and cores."""
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def clean_up_on_sigterm() -> None:
    """Leave through every ``finally`` when told to end, so that no process is left behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def goal(name: str, value: float | str, wanted: float | str, holds: bool) -> dict[str, Any]:
    """One line of ``goals``."""
    return {"name": name, "value": value, "goal": wanted, "holds": holds}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
