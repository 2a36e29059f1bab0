"""A long-lived command from the service's side: started in namespaces of its own, and ended.

Owns its processes and its control group; what it wrote goes with it.
"""

import contextlib
import json
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from troupe.errors import UnavailableError
from troupe_env.sandbox.cgroups import Cgroups
from troupe_env.sandbox.inside import wire
from troupe_env.sandbox.interpreter import Interpreter

_START_S = 20.0
_END_S = 10.0
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_BOOT = (
    "import sys; sys.path.insert(0, {folder!r}); from inside import session; "
    "del sys.path[0], sys; run = session.start(); del session; run()"
)


class CommandSession:
    """See ``troupe.sandbox.sandbox.SandboxSession``; safe to end from any thread."""

    listener: socket.socket

    def __init__(
        self,
        boot: Interpreter,
        config: dict[str, Any],
        request: dict[str, Any],
        body: bytes,
        cgroups: Cgroups,
    ) -> None:
        """``boot`` confines itself and starts what ``request`` names."""
        try:
            with contextlib.ExitStack() as failed:
                self._group = cgroups.make()
                failed.callback(self._group.close)
                self._log = failed.enter_context(tempfile.TemporaryFile())
                self._control, inner_end = socket.socketpair()
                failed.enter_context(self._control)
                config |= {"control": inner_end.fileno(), "joins": self._group.joins}
                with inner_end:
                    self._limit(request)
                    self._process = self._spawn(boot, config, inner_end)
                failed.pop_all()
        except OSError as error:
            raise UnavailableError(f"a command's sandbox could not be started: {error}") from error
        try:
            self.listener = self._greeted()
            wire.send(self._control, request, body, _START_S)
        except BaseException as error:
            self.kill()
            if isinstance(error, OSError | wire.Closed | wire.TooLate):
                raise UnavailableError(
                    f"a command's sandbox did not start ({type(error).__name__} {error})"
                ) from error
            raise

    @property
    def pid(self) -> int:
        """The process that waits for the command; killing it ends all."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the command still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it and all that it began."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        for held in (self._control, self._log, getattr(self, "listener", self._log)):
            held.close()
        self._group.close()

    def _limit(self, request: dict[str, Any]) -> None:
        limits = {"memory_limit": request["memory_bytes"], "pids_limit": request["num_processes"]}
        for role, value in limits.items():
            if role in self._group.counters:
                _write(self._group.counters[role], value)

    def _spawn(
        self, boot: Interpreter, config: dict[str, Any], inner_end: socket.socket
    ) -> "subprocess.Popen[bytes]":
        code = _BOOT.format(folder=str(Path(__file__).parent))
        return subprocess.Popen(
            [*boot.argv, "-c", code, json.dumps(config)],
            env=_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=[inner_end.fileno(), *self._group.joins],
            start_new_session=True,
        )

    def _greeted(self) -> socket.socket:
        self._control.settimeout(_START_S)
        told, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        self._control.settimeout(None)
        if told == b"L" and descriptors:
            return socket.socket(fileno=descriptors[0])
        self._log.seek(0)
        words = self._log.read().decode(errors="replace").strip().splitlines()
        raise UnavailableError(
            "a command's sandbox could not confine itself: "
            f"{words[-1][:300] if words else 'it ended without a word'}"
        )


def _write(number: int, value: int) -> None:
    with contextlib.suppress(OSError), open(number, "wb", closefd=False, buffering=0) as file:
        file.write(str(value).encode())
