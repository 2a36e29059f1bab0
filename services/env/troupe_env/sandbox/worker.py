"""One worker process from the service's side: started with a fixed environment, asked, killed.

Owns the process and its control group. Any doubt about a worker ends it: the pool starts another.
"""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from troupe.errors import UnavailableError
from troupe_env.sandbox.cgroups import Cgroup, Cgroups
from troupe_env.sandbox.inside import wire
from troupe_env.sandbox.interpreter import Interpreter

_START_S = 20.0
_SLACK_S = 15.0
_LEAVE_S = 1.0
_SWEEP_S = 6.0
_HASH_SEED = "0"
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": _HASH_SEED,
    "LD_BIND_NOW": "1",  # look C functions up once, not in each fork; the worker drops it again
}
_BOOT = (
    "import sys; sys.path.insert(0, {folder!r}); from inside import zygote; "
    "del sys.path[0], sys; run = zygote.start(); del zygote; run()"
)


class SandboxWorker:
    """A started worker; use from one thread at a time."""

    def __init__(
        self,
        *,
        level: str,
        uid: int,
        interpreter: Interpreter,
        cgroups: Cgroups,
        preload: list[str],
    ) -> None:
        self.runs = 0
        self._level = level
        with contextlib.ExitStack() as failed:
            self._cgroup = cgroups.make()
            failed.callback(self._cgroup.close)
            self._log = failed.enter_context(tempfile.TemporaryFile())
            service_end, worker_end = socket.socketpair()
            self._control = failed.enter_context(service_end)
            config = {
                "control": worker_end.fileno(),
                "level": level,
                "uid": uid,
                "shown": interpreter.shown,
                "masked": interpreter.masked,
                "packages": interpreter.packages,
                "executable": interpreter.argv[0],
                "joins": self._cgroup.joins,
                "counters": self._cgroup.counters,
                "preload": preload,
            }
            self._process = self._spawn(interpreter, config, worker_end, self._cgroup)
            failed.pop_all()
        try:
            self._greet()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process that stands for the worker; killing it ends all that it runs."""
        return self._process.pid

    def ask(self, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytearray]:
        """Run one program; raises UnavailableError when the worker is no longer usable."""
        self.runs += 1
        try:
            wire.send(self._control, request, body, _SLACK_S)
            header, data = wire.receive(self._control, request["wall_time_s"] + _SLACK_S)
        except (wire.Closed, wire.TooLate, ValueError) as error:
            raise UnavailableError(
                f"A sandbox worker broke ({type(error).__name__} {error}{self._last_words()}) and "
                "is replaced; try again."
            ) from error
        if "broken" in header:
            raise UnavailableError(
                f"The sandbox could not run a program ({header['broken']}); its worker is "
                "replaced; try again."
            )
        return header, data

    def stop(self) -> None:
        """Make a waiting ``ask`` fail, since no answer will come. Call it from any thread."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End the worker and all that it runs; nobody may use it any more."""
        self.stop()
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._end_process()
        finally:
            self._control.close()
            self._log.close()
            self._cgroup.close()

    def _end_process(self) -> None:
        """Kill it; where it guards a worker, let it end that and what it left first."""
        if self._level != "namespaces":
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SWEEP_S)
        self._process.kill()
        self._process.wait(_SLACK_S)

    def _spawn(
        self,
        interpreter: Interpreter,
        config: dict[str, Any],
        worker_end: socket.socket,
        group: Cgroup,
    ) -> "subprocess.Popen[bytes]":
        boot = _BOOT.format(folder=str(Path(__file__).parent))
        try:
            return subprocess.Popen(
                [*interpreter.argv, "-c", boot, json.dumps(config)],
                env=_ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[worker_end.fileno(), *group.descriptors],
                start_new_session=True,
            )
        finally:
            worker_end.close()

    def _greet(self) -> None:
        try:
            header, _ = wire.receive(self._control, _START_S)
        except (wire.Closed, wire.TooLate) as error:
            raise UnavailableError(
                f"A sandbox worker did not start ({type(error).__name__}{self._last_words()})."
            ) from error
        if "error" in header:
            raise UnavailableError(f"A sandbox worker could not confine itself: {header['error']}")

    def _last_words(self) -> str:
        """The last line of the worker's log, which programs never write to."""
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), 2000, max(0, size - 2000)).decode(errors="replace")
        lines = text.strip().splitlines()
        return f"; it said: {lines[-1][:300]}" if lines else ""
