"""Starts programs in the container beside the env service that is of the program's own image.

Owns the connections to what runs there (`image_host.py`). Never starts a container: the launcher of
a job's pods does, and a run that its container loses is a machine's failure.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe_tasks.programs.activity import Look
from troupe_tasks.programs.calls import ProgramRun
from troupe_tasks.programs.launcher import (
    REPLY_S,
    ProgramLauncher,
    ServerProcess,
    WarmRun,
    environment_of,
)

CONNECT_PAUSE_S = 0.1


class ImageRun:
    """A run in the container, seen through a connection of its own."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self._connection = connection
        self._file = connection.makefile("rw", encoding="utf-8")
        self._lock = threading.Lock()
        self._say({"watch": pid})

    @property
    def is_alive(self) -> bool:
        """Whether the program's own process still runs."""
        return bool(self._asked("look")["is_alive"])

    def look(self) -> Look | None:
        """The threads of the run's processes now; None when they are gone."""
        threads: Any = self._asked("look")["threads"]
        return None if threads is None else Look(tuple(tuple(thread) for thread in threads))

    def kill(self) -> None:
        """End the run and all that it began."""
        self._asked("kill")
        with self._lock, contextlib.suppress(OSError):
            self._connection.close()
            self._file.close()

    def _say(self, document: Any) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        self._file.write(text + "\n")
        self._file.flush()

    def _asked(self, what: str) -> Mapping[str, Any]:
        """What the container says; that the run is gone when it says nothing more."""
        with self._lock:
            try:
                self._say(what)
                line = self._file.readline()
            except (OSError, ValueError):  # lost, late or closed
                line = ""
        return json.loads(line) if line else {"is_alive": False, "threads": None}


class ConnectedServer:
    """The process that forks runs, at the other end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = 0
        self.stdin: IO[bytes] = connection.makefile("wb")
        self.stdout: IO[bytes] = connection.makefile("rb")
        self._connection = connection

    def poll(self) -> int | None:
        """0 once the other end has closed the connection."""
        self._connection.setblocking(False)
        try:
            return 0 if not self._connection.recv(1, socket.MSG_PEEK) else None
        except BlockingIOError:
            return None
        except OSError:
            return 0
        finally:
            with contextlib.suppress(OSError):
                self._connection.setblocking(True)

    def wait(self, timeout: float | None = None) -> int:
        """Close the connection: its process ends every run that it began, and itself."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        return 0


class ImageLauncher(ProgramLauncher):
    """See ``ProgramLauncher``; ``path`` is the socket of the program's container."""

    def __init__(
        self,
        path: str | None,
        image: str,
        *,
        preload: list[str],
        folder: str | None,
        start_s: float,
        is_forked: bool,
    ) -> None:
        super().__init__(
            f"the interpreter of {image}",
            preload=preload if is_forked else [],
            folder=folder,
            start_s=start_s,
        )
        self._path = path
        self._is_warmed = is_forked

    def start(
        self,
        run: ProgramRun,
        order: Mapping[str, Any],
        warm: Callable[[], WarmRun | None],
    ) -> ImageRun:
        """See ``ProgramLauncher.start``; one that is not forked from a warm process is forked from
        one that imported nothing."""
        pid = super().start(run, order, warm if self._is_warmed else lambda: None).pid
        try:
            return ImageRun(self._connected(), pid)
        except OSError as error:
            raise UnavailableError(f"the program's container is gone: {error}") from error

    def _popen(self, mode: str, stderr: IO[bytes] | int) -> ServerProcess:
        connection = self._connected()
        first = {"serve": environment_of("python"), "folder": self._folder}
        connection.sendall(json.dumps(first).encode() + b"\n")
        return ConnectedServer(connection)

    def _connected(self) -> socket.socket:
        """A connection; the container may be starting still."""
        if self._path is None:
            raise InvalidArgumentError(
                "this env service has no container of a program's image beside it; play the job on "
                "Kubernetes with env.program.repositories of the chart, or leave image out and "
                "name a python here",
                pointer="/task/params/image",
            )
        deadline = time.monotonic() + self._start_s
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(REPLY_S)
            try:
                connection.connect(self._path)
            except OSError as error:
                connection.close()
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"the program's container did not open {self._path} in "
                        f"{self._start_s:g} s: {error}; see that container's log"
                    ) from error
                time.sleep(CONNECT_PAUSE_S)
            else:
                return connection
