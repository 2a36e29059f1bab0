"""Runs components as processes of this machine, and finds them again after a restart.

Owns process records, logs, backoff and process groups. Never knows what a component does; the one
convention is exit status 3: the configuration is wrong and a restart will not help.
"""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from troupe.aio import to_the_end
from troupe.runtime.disk_space import FULL_BYTES, DiskSpace, is_full
from troupe.runtime.launch.launcher import EXIT_CONFIGURATION, Component, ComponentStatus
from troupe.runtime.launch.processes import (
    ProcessId,
    find_leader,
    identify,
    kill_leftovers,
    look,
    reap,
    signal_group,
)
from troupe.runtime.launch.records import (
    ProcRecord,
    forget_record,
    last_words,
    load_record,
    load_records,
)

LAUNCH_ID = "TROUPE_LAUNCH_ID"
"""Environment variable that marks one life of one component."""

_POLL_S = 0.02
_DETAIL_LINES = 20
_DETAIL_BYTES = 4000
_TAIL_BYTES = 64 * 1024
"""A traceback is one line of a log, and is read whole."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Backoff and its bound: more than ``max_restarts`` in ``window_s`` is a failure.

    The n-th quick death in a row waits ``first_s * 2**n``, at most ``longest_s``. A process that
    had run for ``steady_s`` was no crash loop: it waits ``first_s``. ``counts_steady``: such a
    death counts towards the bound; not where whatever was up for a while must always come back.
    """

    first_s: float = 0.2
    longest_s: float = 10.0
    max_restarts: int = 8
    window_s: float = 180.0
    steady_s: float = 10.0
    counts_steady: bool = True


class LocalLauncher:
    """A Launcher of local processes; records and logs live in ``<state_dir>/<owner>/``.

    Example: ``await LocalLauncher(Path("runs")).reconcile("demo-1", [Component(...)])``.
    """

    outlives_caller = False

    def __init__(
        self, state_dir: Path, *, restarts: RestartPolicy | None = None, grace_s: float = 10.0
    ) -> None:
        self._state_dir = state_dir.absolute()
        self._policy = restarts or RestartPolicy()
        self._grace_s = grace_s
        self._disk = DiskSpace(self._state_dir, needed_bytes=FULL_BYTES)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        """Start what is missing, adopt what runs, restart what died, stop the rest."""
        async with self._locks[owner]:
            records = await asyncio.to_thread(load_records, self._procs(owner))
            digests = {component.name: _digest(component) for component in desired}
            stale = [r for r in records if digests.get(r.name) != r.digest]
            await self._end(owner, stale, self._grace_s)
            return await to_the_end(
                lambda: [self._try_step(owner, component) for component in desired]
            )

    async def stop(self, owner: str, *, grace_s: float) -> None:
        """End every process of the owner: SIGTERM, then SIGKILL after ``grace_s``."""
        async with self._locks[owner]:
            records = await asyncio.to_thread(load_records, self._procs(owner))
            await self._end(owner, records, grace_s)

    def _procs(self, owner: str) -> Path:
        return self._state_dir / owner / "procs"

    async def _end(self, owner: str, records: Sequence[ProcRecord], grace_s: float) -> None:
        processes = [p for record in records if (p := _process(record))]
        for process in processes:
            signal_group(process, signal.SIGTERM)
        for process in await _until_dead(processes, grace_s):
            signal_group(process, signal.SIGKILL)
        await _until_dead(processes, 5.0)
        for process in processes:
            kill_leftovers(process)
            reap(process.pid)
        for record in records:
            forget_record(self._procs(owner), record.name)

    def _try_step(self, owner: str, component: Component) -> ComponentStatus:
        """``_step``; on a disk without room for the record it is tried again at the next call."""
        try:
            return self._step(owner, component)
        except OSError as error:
            if not is_full(error):
                raise
            return ComponentStatus(
                name=component.name,
                state="waiting",
                pid=None,
                restarts=0,
                exit_code=None,
                detail=f"the disk of {self._state_dir} is full ({error}); free space there",
                condition="DiskFull",
            )

    def _step(self, owner: str, component: Component) -> ComponentStatus:
        """Bring one component one step closer to running; returns its status then."""
        folder = self._procs(owner)
        record = load_record(folder, component.name)
        if record is None:
            log = folder.parent / "logs" / f"{component.name}.log"
            record = ProcRecord(component.name, _digest(component), str(log))
            self._start(record, component, folder)
        elif record.state == "running" and not self._still_runs(record):
            self._settle(record, component, folder)
        if record.state == "restarting" and self._is_due(record.restart_at):
            record.restarts += 1
            self._start(record, component, folder)
        return _status(record)

    def _is_due(self, restart_at: float) -> bool:
        """Whether the wait is over; at most ``longest_s``, even if the clock is changed."""
        return not 0 < restart_at - time.time() <= self._policy.longest_s

    def _still_runs(self, record: ProcRecord) -> bool:
        process = _process(record)
        if process is None:
            return False
        state = look(process)
        if state.is_alive:
            return True
        kill_leftovers(process)
        reaped = reap(process.pid)
        record.exit_code = reaped if reaped is not None else state.exit_code
        return False

    def _settle(self, record: ProcRecord, component: Component, folder: Path) -> None:
        """Decide what an exit means. One on a full disk, which passes, is held against nobody."""
        now = time.time()
        self._disk.look()
        is_excused = self._disk.was_short_since(record.started_at)  # freed before this look, too
        record.detail = _tail(Path(record.log), record.log_start)
        record.pid = None
        is_steady = now - record.started_at >= self._policy.steady_s
        if is_steady:
            record.num_quick = 0
        if is_excused or (is_steady and not self._policy.counts_steady):
            record.failures = []
        record.failures = [t for t in record.failures if abs(now - t) < self._policy.window_s]
        if record.exit_code == 0 and not component.restarts:
            record.state = "exited"
        elif record.exit_code == EXIT_CONFIGURATION and not is_excused:
            record.state = "failed"
        elif len(record.failures) >= self._policy.max_restarts:
            record.state = "failed"
            record.detail = (
                f"it died {len(record.failures) + 1} times in {self._policy.window_s:.0f} s; "
                f"see {record.log}\n{record.detail}"
            )
        else:
            wait_s = self._policy.first_s * 2.0 ** min(record.num_quick, 30)
            record.num_quick += not is_steady
            record.failures.append(now)
            record.state = "restarting"
            record.restart_at = now + min(wait_s, self._policy.longest_s)
        record.save(folder)

    def _start(self, record: ProcRecord, component: Component, folder: Path) -> None:
        """Start a process; the intent is on disk first, so that no crash loses the process."""
        log = Path(record.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            record.log_start = sink.tell()
            record.launch_id = uuid.uuid4().hex
            record.state, record.pid, record.ticks, record.exit_code = "running", None, 0, None
            record.started_at = time.time()
            record.save(folder)
            # A child needs this process's whole environment (PATH, HOME, proxies), not settings.
            environment = {**component.defaults, **os.environ, **component.env}
            environment[LAUNCH_ID] = record.launch_id
            try:
                child = subprocess.Popen(
                    _argv(component),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                sink.write(f"cannot start {_argv(component)[0]}: {error}\n".encode())
                sink.flush()
                record.exit_code = EXIT_CONFIGURATION
                self._settle(record, component, folder)
                return
        identity = identify(child.pid)
        record.pid, record.ticks = child.pid, identity.ticks if identity else 0
        # Children are reaped by pid, so that adopted and started ones take the same path.
        child.returncode = 0
        record.save(folder)


def _argv(component: Component) -> list[str]:
    if component.argv:
        return [*component.argv, *component.args]
    return [sys.executable, "-m", component.module, *component.args]


def _digest(component: Component) -> str:
    variables = sorted({**component.defaults, **component.env}.items())
    document = json.dumps([_argv(component), dict(variables)])
    return hashlib.blake2b(document.encode(), digest_size=16).hexdigest()


def _process(record: ProcRecord) -> ProcessId | None:
    """The recorded process; searched by its launch id when a crash left its pid unwritten."""
    if record.pid is not None:
        return ProcessId(record.pid, record.ticks)
    if record.state != "running":
        return None
    leader = find_leader(LAUNCH_ID, record.launch_id)
    if leader is not None:
        record.pid, record.ticks = leader.pid, leader.ticks
    return leader


async def _until_dead(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """The processes that still run after ``timeout_s``; returns as soon as none does."""
    polls = max(1, round(timeout_s / _POLL_S))
    for _ in range(polls):
        living = [process for process in processes if look(process).is_alive]
        if not living:
            return []
        await asyncio.sleep(_POLL_S)
    return [process for process in processes if look(process).is_alive]


def _status(record: ProcRecord) -> ComponentStatus:
    state = record.state
    if state not in ("running", "restarting", "exited", "failed"):
        state = "absent"
    return ComponentStatus(
        name=record.name,
        state=state,
        pid=record.pid,
        restarts=record.restarts,
        exit_code=record.exit_code,
        detail=record.detail,
        launch_id=record.launch_id,
    )


def _tail(log: Path, start: int) -> str:
    """What the last lines of the log from byte ``start`` on say."""
    try:
        with log.open("rb") as source:
            end = source.seek(0, os.SEEK_END)
            began = source.seek(max(start, end - _TAIL_BYTES))
            text = source.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = text.splitlines()
    if began > start:  # the first one is cut
        lines = lines[1:] or lines
    return last_words("\n".join(lines[-_DETAIL_LINES:]))[-_DETAIL_BYTES:]
