"""A control group for each worker's programs, v1 and v2, where the service may make one.

Owns paths; the worker gets open descriptors only. Without a writable control group none is made,
and ``Cgroups.limits`` is empty: only rlimits apply then.
"""

import contextlib
import itertools
import os
import secrets
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

_PREFIX = "troupe-sandbox-"
_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_V1 = {
    "memory": {
        "memory_limit": "memory.limit_in_bytes",
        "held": "memory.usage_in_bytes",
        "peak": "memory.max_usage_in_bytes",
        "oom": "memory.oom_control",
    },
    "pids": {"pids_limit": "pids.max", "pids_hit": "pids.events"},
    "cpuacct": {"cpu_ns": "cpuacct.usage"},
    "cpu": {},
}
_V2 = {
    "memory": {
        "memory_limit": "memory.max",
        "held": "memory.current",
        "peak": "memory.peak",
        "oom": "memory.events",
    },
    "pids": {"pids_limit": "pids.max", "pids_hit": "pids.events"},
    "cpu": {"cpu": "cpu.stat"},
}
_PERIOD_US = 10_000  # short: a worker that shares its programs' group is throttled with them
_EMPTY_S = 1.0
_life = secrets.token_hex(4)  # a later process may have this one's number, as a container's first
_numbers = itertools.count(1)  # of all groups of this process, so that names never collide


@dataclass
class Cgroup:
    """One worker's group: ``joins`` move a process in, ``counters`` read and limit."""

    folders: list[Path] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def descriptors(self) -> list[int]:
        """Everything that the worker inherits."""
        return [*self.joins, *self.counters.values()]

    def close(self) -> None:
        """End whatever is still in the group, and remove it, or leave it to a later sweep."""
        # Taken out first: closing twice would close what somebody opened meanwhile.
        numbers, folders = self.descriptors, self.folders
        self.folders, self.joins, self.counters = [], [], {}
        for number in numbers:
            os.close(number)
        deadline = time.monotonic() + _EMPTY_S
        for folder in folders:
            while not _is_removed(folder) and time.monotonic() < deadline:
                _kill_members(folder)
                time.sleep(0.005)


def _kill_members(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for member in (folder / "cgroup.procs").read_text().split():
            if int(member) > 0:  # 0 is a process that this one can't name
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(member), signal.SIGKILL)


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class Cgroups:
    """The parents of new groups, found once. ``limits`` names the working controllers."""

    def __init__(self, configured: str = "", root: Path = _ROOT, proc: Path = _PROC) -> None:
        self._proc = proc
        self._parents: dict[str, Path] = {}
        self._files = _V1
        parents = _v1_parents(root, proc)
        if not parents:
            self._files = _V2
            parents = _v2_parents(root, proc, configured)
        for controller, parent in parents.items():
            self._sweep(parent)
            if self._is_usable(controller, parent):
                self._parents[controller] = parent

    @property
    def limits(self) -> list[str]:
        """Controllers in use, such as ["cpu", "memory", "pids"]; empty: only rlimits hold."""
        return sorted(self._parents)

    def make(self) -> Cgroup:
        """A fresh group; empty where control groups can't be used."""
        name = f"{_of_this_life()}{next(_numbers)}"
        group = Cgroup()
        try:
            for controller, parent in self._parents.items():
                self._fill(group, controller, parent / name)
        except OSError:
            group.close()
            raise
        return group

    def _fill(self, group: Cgroup, controller: str, folder: Path) -> None:
        if folder not in group.folders:
            folder.mkdir()
            group.folders.append(folder)
            group.joins.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        for role, name in self._files[controller].items():
            path = folder / name
            if path.exists():
                mode = os.O_RDWR if os.access(path, os.W_OK) and _is_set(role) else os.O_RDONLY
                group.counters[role] = os.open(path, mode | os.O_CLOEXEC)
        if controller == "memory":
            _try_write(folder / "memory.swap.max", "0")
            _try_write(folder / "memory.swappiness", "0")
        if controller == "cpu":
            _try_write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
            _try_write(folder / "cpu.cfs_quota_us", str(_PERIOD_US))
            _try_write(folder / "cpu.max", f"{_PERIOD_US} {_PERIOD_US}")

    def _is_usable(self, controller: str, parent: Path) -> bool:
        """Whether a group can be made there, its files appear, and a process can join it."""
        folder = parent / f"{_of_this_life()}0"
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            return False
        needed = [
            folder / name for role, name in self._files[controller].items() if _is_limit(role)
        ]
        is_usable = all(os.access(path, os.W_OK) for path in [folder / "cgroup.procs", *needed])
        with contextlib.suppress(OSError):
            folder.rmdir()
        return is_usable

    def _sweep(self, parent: Path) -> None:
        """Remove the leftovers of killed services."""
        with contextlib.suppress(OSError):
            for folder in parent.glob(f"{_PREFIX}*-*"):
                owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
                is_alive = owner != str(os.getpid()) and (self._proc / owner).exists()
                if not (is_alive or folder.name.startswith(_of_this_life())):
                    with contextlib.suppress(OSError):
                        folder.rmdir()


def _is_limit(role: str) -> bool:
    return role.endswith("_limit")


def _is_set(role: str) -> bool:
    return _is_limit(role) or role == "peak"


def _try_write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        if path.exists():
            path.write_text(text)


def _process_paths(proc: Path) -> dict[str, str]:
    """Controller (v2: the empty name) to this process's path in its hierarchy."""
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _v1_parents(root: Path, proc: Path) -> dict[str, Path]:
    paths = _process_paths(proc)
    parents: dict[str, Path] = {}
    for controller in _V1:
        if controller in paths:
            folder = root / controller / paths[controller].lstrip("/")
            # In a container the path is the host's and the mount starts at the container's own.
            folder = folder if folder.is_dir() else root / controller
            if (folder / "cgroup.procs").exists():
                parents[controller] = folder.resolve()
    return parents if "memory" in parents else {}


def _v2_parents(root: Path, proc: Path, configured: str) -> dict[str, Path]:
    path = _process_paths(proc).get("", "/").lstrip("/")
    parent = Path(configured) if configured else root / path
    if not (parent / "cgroup.controllers").exists():
        return {}
    with contextlib.suppress(OSError):
        _enable(parent, is_own=not configured)
    try:
        enabled = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return {}
    return {controller: parent for controller in _V2 if controller in enabled}


def _enable(group: Path, *, is_own: bool) -> None:
    """Enable controllers for child groups; a group that does so must hold no process."""
    available = (group / "cgroup.controllers").read_text().split()
    additions = [f"+{controller}" for controller in _V2 if controller in available]
    if is_own:
        members = (group / "cgroup.procs").read_text().split()
        if members == [str(os.getpid())]:
            leaf = group / "troupe-service"
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text(str(os.getpid()))
    (group / "cgroup.subtree_control").write_text(" ".join(additions))


def _of_this_life() -> str:
    """How names of this process's groups begin."""
    return f"{_PREFIX}{os.getpid()}-{_life}-"
