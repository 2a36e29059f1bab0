"""The run's control group through descriptors that the service opened: limits, use and hits.

Without control groups every number is zero and only rlimits hold. Never opens a path.
"""

import contextlib
import os
import time

_MIB = 1 << 20
_NO_LIMIT = 1 << 62


class Counters:
    """``files`` maps a role to a descriptor; see ``troupe_env.sandbox.cgroups``."""

    def __init__(self, files: dict[str, int]) -> None:
        self._files = files
        self._limits: dict[str, int] = {}
        self._before = dict.fromkeys(("cpu", "oom", "pids_hit"), 0)
        self._own_cpu_s = 0.0
        self._own_bytes = 0
        self._num_members = 0

    def join(self, joins: list[int]) -> None:
        """Move this process into the group; what it forks is born there.

        Moving a process is slow on a kernel that is idle (it waits until every processor has
        passed a quiet state: 6 to 26 ms), so it is done once a worker and never in a run.
        """
        for number in joins:
            os.write(number, b"0")
            os.close(number)
        self._num_members = 2 if joins else 0  # its template is born there too

    def begin(self, memory_bytes: int, num_processes: int) -> None:
        """Set the limits of the next run and remember where the counters stand."""
        self._own_bytes = -(-self._number("held") // _MIB) * _MIB
        self._set("memory_limit", memory_bytes + self._own_bytes)
        self._set("pids_limit", num_processes + self._num_members)
        if "peak" in self._files:
            with contextlib.suppress(OSError):
                os.pwrite(self._files["peak"], b"0", 0)
        self._before = {role: self._number(role) for role in self._before}
        self._own_cpu_s = time.process_time()

    def end(self) -> None:
        """Lift the memory limit: the worker's use between runs is not a program's."""
        self._set("memory_limit", _NO_LIMIT)

    def cpu_s(self) -> float:
        """CPU time of the whole run so far."""
        scale = 1e-9 if "cpu_ns" in self._files else 1e-6
        own_s = (time.process_time() - self._own_cpu_s) * (self._num_members > 0)
        return (self._number("cpu") - self._before["cpu"]) * scale - own_s

    def peak_bytes(self) -> int:
        """Most memory that the whole run held at once."""
        return max(0, self._number("peak") - self._own_bytes)

    def was_out_of_memory(self) -> bool:
        """The kernel ended a process of the run for memory."""
        return self._number("oom") > self._before["oom"]

    def was_out_of_pids(self) -> bool:
        """The run exceeded its number of processes."""
        return self._number("pids_hit") > self._before["pids_hit"]

    def _set(self, role: str, value: int) -> None:
        if role in self._files and self._limits.get(role) != value:
            os.pwrite(self._files[role], str(value).encode(), 0)
            self._limits[role] = value

    def _number(self, role: str) -> int:
        number = self._files.get(role if role != "cpu" else "cpu_ns", self._files.get(role))
        if number is None:
            return 0
        return _value(os.pread(number, 4096, 0), _NAMES.get(role))


def _value(text: bytes, name: bytes | None) -> int:
    """The number of a file of one number, or the one behind ``name``; 0 where there is none."""
    words = text.split()
    if words and words[0].isdigit():
        return int(words[0])
    return int(words[words.index(name) + 1]) if name in words else 0


_NAMES = {"cpu": b"usage_usec", "oom": b"oom_kill", "pids_hit": b"max"}
