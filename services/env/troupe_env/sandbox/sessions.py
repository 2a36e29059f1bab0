"""The long-lived commands of a sandbox: how many there are, and what each may see and use."""

import threading
import weakref
from typing import Any

from troupe.errors import InvalidArgumentError, OverloadedError, UnavailableError
from troupe.sandbox.sandbox import Limits, SandboxCommand
from troupe_env.sandbox import interpreter
from troupe_env.sandbox.cgroups import Cgroups
from troupe_env.sandbox.interpreter import Interpreter
from troupe_env.sandbox.session import CommandSession
from troupe_env.sandbox.settings import SandboxSettings

MAX_SESSIONS = 256
_FIRST_UID = 1024  # above the workers' users, of which there are at most so many
_NUM_INODES = 65_536
_SCRIPT = ".troupe/script.py"


class CommandSessions:
    """Starts commands and ends them with the sandbox; safe to use from several threads."""

    def __init__(self, settings: SandboxSettings, boot: Interpreter, cgroups: Cgroups) -> None:
        self._settings = settings
        self._boot = boot
        self._cgroups = cgroups
        self._lock = threading.Lock()
        self._numbers: weakref.WeakKeyDictionary[CommandSession, int] = weakref.WeakKeyDictionary()
        self._starting: set[int] = set()
        self._is_closed = False

    def open(
        self, command: SandboxCommand, limits: Limits, rlimits: dict[str, tuple[int, int]]
    ) -> CommandSession:
        """Start ``command``; see ``troupe.sandbox.sandbox.CommandSandbox``."""
        with self._lock:
            if self._is_closed:
                raise UnavailableError("The sandbox is closed: its service is stopping.")
            taken = {n for session, n in self._numbers.items() if session.is_alive}
            taken |= self._starting
            if len(taken) >= MAX_SESSIONS:
                raise OverloadedError(
                    f"{MAX_SESSIONS} commands run in this sandbox; try again, or add replicas."
                )
            # A live command's user is nobody else's: they could kill each other.
            number = next(n for n in range(MAX_SESSIONS) if n not in taken)
            self._starting.add(number)
        try:
            return self._started(number, command, limits, rlimits)
        finally:
            with self._lock:
                self._starting.discard(number)

    def _started(
        self,
        number: int,
        command: SandboxCommand,
        limits: Limits,
        rlimits: dict[str, tuple[int, int]],
    ) -> CommandSession:
        for path in (command.python, *command.shown):
            if path.startswith("/tmp/"):
                raise InvalidArgumentError(
                    f"{path} lies below /tmp, where a command in the sandbox has its own files; "
                    "move it elsewhere"
                )
        seen = interpreter.find(
            self._settings.model_copy(
                update={"python": command.python, "shown_paths": list(command.shown)}
            )
        )
        config = self._config(command, seen, self._settings.first_uid + _FIRST_UID + number)
        texts = [text.encode(errors="surrogatepass") for text in (command.stdin, command.script)]
        request: dict[str, Any] = {
            "names": [".stdin", _SCRIPT],
            "sizes": [len(text) for text in texts],
            "file": _SCRIPT,
            "folder": "/tmp",
            "stdin_path": "/tmp/.stdin",
            "argv": [*seen.argv, "-u", f"/tmp/{_SCRIPT}", *command.arguments],
            "memory_bytes": limits.memory_bytes,
            "num_processes": limits.num_processes + 2,  # the cell, and the script's own
            "tmp_bytes": limits.file_bytes,
            "tmp_inodes": _NUM_INODES,
            "rlimits": rlimits,
        }
        session = CommandSession(self._boot, config, request, b"".join(texts), self._cgroups)
        with self._lock:
            self._numbers[session] = number
            if not self._is_closed:
                return session
        session.kill()
        raise UnavailableError("The sandbox is closed: its service is stopping.")

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._is_closed = True
            closing = list(self._numbers)
        for session in closing:
            session.kill()

    def _config(self, command: SandboxCommand, seen: Interpreter, uid: int) -> dict[str, Any]:
        """What the session's process needs to confine itself."""
        environment = {"HOME": "/tmp", "TMPDIR": "/tmp", **command.environment}
        return {
            "uid": uid,
            "shown": seen.shown,
            "masked": seen.masked,
            "packages": {},
            "executable": seen.argv[0],
            "port": command.port,
            "environment": environment,
        }
