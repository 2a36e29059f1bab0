"""What tests of the sandbox ask of this machine: whether it can isolate, and its control groups."""

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from troupe.errors import TroupeError

_UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--mount", "--fork", "--mount-proc")


def skip_or_fail(error: TroupeError) -> NoReturn:
    """Skip where the kernel refuses namespaces; else a sandbox that does not open is a failure."""
    if why := _refusal():
        pytest.skip(f"this machine refuses namespaces ({why}): {error.message}")
    pytest.fail(f"unshare(1) works on this machine, so the sandbox has to open: {error.message}")


def _refusal() -> str:
    """What the kernel says, asked without Troupe; "" if it allows namespaces."""
    try:
        done = subprocess.run(
            [*_UNSHARE, "true"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        return str(error)
    return (done.stderr.strip() or f"status {done.returncode}") if done.returncode else ""


def own_cgroups() -> set[Path]:
    """Control groups of this process's sandboxes; groups of others may go meanwhile."""
    return {
        Path(folder, name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(f"troupe-sandbox-{os.getpid()}-")
    }
