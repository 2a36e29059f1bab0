"""The sandbox of a process: a fixed number of workers, a bounded queue in front of them.

Assigns programs to workers and replaces broken workers. Never weakens the requested isolation.
"""

import os
import threading
import time
from pathlib import PurePosixPath
from typing import Any

from troupe.errors import InvalidArgumentError, OverloadedError, TroupeError, UnavailableError
from troupe.runtime.faults import reached
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.telemetry.tracing import span
from troupe.sandbox.sandbox import Execution, Limits, Program, SandboxCommand
from troupe_env.sandbox import interpreter
from troupe_env.sandbox.cgroups import Cgroups
from troupe_env.sandbox.session import CommandSession
from troupe_env.sandbox.sessions import CommandSessions
from troupe_env.sandbox.settings import Language, Level, SandboxSettings
from troupe_env.sandbox.worker import SandboxWorker

_log = get_logger(__name__)
_PYTHON_FILE = "main.py"
_STDIN_FILE = ".stdin"
_BLOCK = 4096
_MAX_FILES = 64
_NAME_BYTES, _MAX_DEPTH = 255, 16
_SCRATCH_INODES = 1024
_CLOSE_S = 20.0
_ADDRESS_SPACE_SLACK = 64 << 20


class LocalSandbox:
    """``troupe.sandbox.sandbox.Sandbox`` on workers of this machine; safe for many threads."""

    def __init__(self, settings: SandboxSettings, level: Level) -> None:
        self.level: str = level
        self._settings = settings
        self._interpreter = interpreter.find(settings)
        self._cgroups = Cgroups(settings.cgroup)
        self._condition = threading.Condition()
        self._num_workers = settings.num_workers
        self._free_slots = list(range(self._num_workers))
        self._all: dict[int, SandboxWorker] = {}
        self._waiting: list[object] = []
        self._is_closed = False
        self._sessions = CommandSessions(settings, self._interpreter, self._cgroups)

    @property
    def num_workers(self) -> int:
        """Programs that run at once."""
        return self._num_workers

    @property
    def cgroup_limits(self) -> list[str]:
        """Control groups in use; empty: limits hold by rlimit, for each process alone."""
        return self._cgroups.limits

    @property
    def worker_pids(self) -> list[int]:
        """Processes of the workers that are up."""
        with self._condition:
            return [worker.pid for worker in self._all.values()]

    def run(self, program: Program, limits: Limits) -> Execution:
        """Run ``program`` alone, from nothing, and clean up whatever it left."""
        request, body = self._request(program, limits)
        slot = self._acquire()
        try:
            with metrics.ENV_SANDBOX_SECONDS.time(), span("sandbox.run"):
                execution = self._run_in(slot, request, body)
        except TroupeError:
            metrics.ENV_SANDBOX_RUNS.labels("broken").inc()
            raise
        finally:
            self._release(slot)
        outcome = execution.limit or ("ok" if execution.exit_code == 0 else "failed")
        metrics.ENV_SANDBOX_RUNS.labels(outcome).inc()
        return execution

    def open(self, command: SandboxCommand, limits: Limits) -> CommandSession:
        """See ``troupe.sandbox.sandbox.CommandSandbox``; only at the level ``namespaces``."""
        if self.level != "namespaces":
            raise InvalidArgumentError(
                f"The sandbox level {self.level!r} runs no long-lived commands, which need a "
                "network of their own; set TROUPE_ENV_SANDBOX=namespaces."
            )
        return self._sessions.open(command, limits, self._rlimits(limits))

    def close(self) -> None:
        """End everything that runs; returns when it is gone."""
        self._sessions.close()
        deadline = time.monotonic() + _CLOSE_S
        with self._condition:
            self._is_closed = True
            for worker in self._all.values():
                worker.stop()
            self._condition.notify_all()
            while len(self._free_slots) < self._num_workers and time.monotonic() < deadline:
                self._condition.wait(0.05)
            idle = [self._all.pop(slot) for slot in self._free_slots if slot in self._all]
        for worker in idle:
            worker.kill()

    def _acquire(self) -> int:
        """Wait for a free slot; who came first gets it first."""
        deadline = time.monotonic() + self._settings.wait_s
        with self._condition:
            if not self._free_slots and len(self._waiting) >= self._settings.max_waiting:
                raise OverloadedError(
                    f"{len(self._waiting)} programs wait for the sandbox's {self._num_workers} "
                    "workers; try again, add replicas, or raise TROUPE_ENV_SANDBOX_MAX_WAITING."
                )
            ticket = object()
            self._waiting.append(ticket)
            self._count_waiting()
            try:
                while not self._is_closed and not (self._free_slots and self._is_next(ticket)):
                    if not self._condition.wait(max(0.0, deadline - time.monotonic())):
                        raise OverloadedError(
                            f"No sandbox worker became free in {self._settings.wait_s:g} s; try "
                            "again, add replicas, or raise TROUPE_ENV_SANDBOX_WORKERS."
                        )
                if self._is_closed:
                    raise UnavailableError("The sandbox is closed: its service is stopping.")
                return self._free_slots.pop()
            finally:
                self._waiting.remove(ticket)
                self._count_waiting()
                self._condition.notify_all()

    def _is_next(self, ticket: object) -> bool:
        return self._waiting[0] is ticket

    def _count_waiting(self) -> None:
        metrics.ENV_SANDBOX_WAITING.set(len(self._waiting))

    def _release(self, slot: int) -> None:
        with self._condition:
            self._free_slots.append(slot)
            self._condition.notify_all()

    def _run_in(self, slot: int, request: dict[str, Any], body: bytes) -> Execution:
        worker = self._worker(slot)
        reached("env.sandbox_asked", slot)
        try:
            header, data = worker.ask(request, body)
        except BaseException:
            self._discard(slot, worker)
            metrics.ENV_SANDBOX_REPLACED.inc()
            _log.warning("sandbox.worker_replaced", slot=slot)
            raise
        if worker.runs >= self._settings.runs_per_worker:
            self._discard(slot, worker)
        num_out = header["sizes"][0]
        return Execution(
            stdout=data[:num_out].decode(errors="replace"),
            stderr=data[num_out:].decode(errors="replace"),
            exit_code=header["exit_code"],
            limit=header["limit"],
            wall_time_s=header["wall_s"],
            peak_memory_bytes=header["peak_bytes"],
        )

    def _worker(self, slot: int) -> SandboxWorker:
        """The slot's worker, started when there is none."""
        with self._condition:
            worker = self._all.get(slot)
        if worker is not None:
            return worker
        worker = SandboxWorker(
            level=self.level,
            uid=self._settings.first_uid + slot,
            interpreter=self._interpreter,
            cgroups=self._cgroups,
            preload=self._settings.preload,
        )
        with self._condition:
            if not self._is_closed:
                self._all[slot] = worker
                return worker
        worker.kill()
        raise UnavailableError("The sandbox is closed: its service is stopping.")

    def _discard(self, slot: int, worker: SandboxWorker) -> None:
        with self._condition:
            is_ours = self._all.pop(slot, None) is not None
        if is_ours:
            worker.kill()

    def _request(self, program: Program, limits: Limits) -> tuple[dict[str, Any], bytes]:
        language = self._language(program.language)
        name = language.file if language else _PYTHON_FILE
        files = {_STDIN_FILE: program.stdin, name: program.source, **_checked(program, name)}
        texts = [text.encode(errors="surrogatepass") for text in files.values()]
        occupied = sum(_BLOCK * (2 + len(text) // _BLOCK) for text in texts)
        request = {
            "names": list(files),
            "sizes": [len(text) for text in texts],
            "file": name,
            "argv": language.argv if language else None,
            "wall_time_s": limits.wall_time_s,
            "cpu_time_s": limits.cpu_time_s,
            "memory_bytes": limits.memory_bytes,
            "num_processes": limits.num_processes,
            "output_bytes": limits.output_bytes,
            "tmp_bytes": limits.file_bytes + occupied,
            "tmp_inodes": _SCRATCH_INODES + len(files) + sum(name.count("/") for name in files),
            "rlimits": self._rlimits(limits),
        }
        return request, b"".join(texts)

    def _language(self, name: str) -> Language | None:
        if name == "python":
            return None
        if name not in self._settings.languages:
            known = ", ".join(["python", *self._settings.languages])
            raise InvalidArgumentError(
                f"The sandbox is not configured for the language {name!r}; it runs {known}. Add "
                "it to TROUPE_ENV_SANDBOX_LANGUAGES."
            )
        return self._settings.languages[name]

    def _rlimits(self, limits: Limits) -> dict[str, tuple[int, int]]:
        cpu_s = max(1, int(-(-limits.cpu_time_s // 1)))
        rlimits = {
            "RLIMIT_CPU": (cpu_s, cpu_s + 1),
            "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
            "RLIMIT_NOFILE": (256, 256),
            "RLIMIT_MEMLOCK": (0, 0),
            "RLIMIT_MSGQUEUE": (0, 0),
            "RLIMIT_SIGPENDING": (1024, 1024),
        }
        if self.level == "namespaces" or os.geteuid() == 0:
            # The cell counts too. Without a user of its own the limit would count other processes.
            # Where the control group counts, it is the tighter one, since it says that it was hit.
            spare = 9 if "pids" in self._cgroups.limits else 1
            rlimits["RLIMIT_NPROC"] = _both(limits.num_processes + spare)
        if "memory" not in self._cgroups.limits:
            rlimits["RLIMIT_AS"] = _both(limits.memory_bytes + _ADDRESS_SPACE_SLACK)
        return rlimits


def _both(value: int) -> tuple[int, int]:
    return value, value


def _checked(program: Program, source_file: str) -> dict[str, str]:
    """The program's files, whose names can't lead out of its folder."""
    if len(program.files) > _MAX_FILES:
        raise InvalidArgumentError(
            f"The program has {len(program.files)} files; {_MAX_FILES} are allowed."
        )
    taken, files = {source_file, _STDIN_FILE}, dict[str, str]()
    for name, text in program.files.items():
        plain = str(PurePosixPath(name))
        if not _is_plain(name) or plain in taken:
            raise InvalidArgumentError(
                f"A program's file can't be called {name[:_NAME_BYTES]!r}: give a relative name "
                f"without '..', once, other than {source_file} and {_STDIN_FILE}, of at most "
                f"{_MAX_DEPTH} parts of {_NAME_BYTES} bytes."
            )
        taken.add(plain)
        files[plain] = text
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    for name in sorted(folders & taken):
        raise InvalidArgumentError(
            f"A program's files have {name!r} as a file and as a folder; rename one of them."
        )
    return files


def _is_plain(name: str) -> bool:
    """Whether a file of this name can be laid out, and lies in the program's folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or len(path.parts) > _MAX_DEPTH:
        return False
    try:
        is_short = all(len(part.encode()) <= _NAME_BYTES for part in path.parts)
    except UnicodeEncodeError:
        return False
    return is_short and "\0" not in name and not name.endswith("/")
