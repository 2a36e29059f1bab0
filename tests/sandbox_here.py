"""What tests of the sandbox ask of this machine: whether it can isolate, and its control groups."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from troupe.errors import TroupeError

_OLDEST_KERNEL = (5, 12)
"""As the sandbox says where it does not open."""
_ASK = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
user, group = os.getuid(), os.getgid()
def must(what, status):
    if status:
        raise SystemExit(f"{what}: {os.strerror(ctypes.get_errno())}")
must("unshare", libc.unshare(0x10000000 | 0x20000 | 0x20000000))  # user, mounts, processes
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
must("mount", libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None))  # recursive, private
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
must("mount of /proc", libc.mount(b"proc", b"/proc", b"proc", 0, None))
"""
"""By Python, as the sandbox does: some systems allow more to unshare(1)."""


def skip_or_fail(error: TroupeError) -> NoReturn:
    """Skip where the kernel refuses namespaces; else a sandbox that does not open is a failure."""
    if why := _refusal():
        pytest.skip(f"this machine refuses namespaces ({why}): {error.message}")
    pytest.fail(f"namespaces work on this machine, so the sandbox has to open: {error.message}")


def _refusal() -> str:
    """What the kernel says, asked without Troupe; "" if it allows namespaces."""
    release = platform.release()
    numbers = tuple(map(int, re.findall(r"\d+", release)[:2]))
    if numbers < _OLDEST_KERNEL:
        return f"Linux {release}"
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"
    return ""


def own_cgroups() -> set[Path]:
    """Control groups of this process's sandboxes; groups of others may go meanwhile."""
    return {
        Path(folder, name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(f"troupe-sandbox-{os.getpid()}-")
    }
