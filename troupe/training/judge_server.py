"""Serves the caller's functions to env processes of this machine, over a Unix socket.

The socket lies in a folder that only this user can enter, so whoever reaches it could run the
functions himself. Requests are small JSON documents over HTTP; nothing is ever unpickled. The
calling process judges: functions may be closures, hold models or count calls.
"""

import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from threading import Thread
from typing import Any, Self, cast

from troupe.errors import InvalidArgumentError, TroupeError
from troupe.training.functions import CallerEnvironment

MAX_BODY_BYTES = 64 * 1024 * 1024


_PLACE = Path("/tmp")
_MAX_PATH_BYTES = 107
"""Of a Unix socket's path on Linux."""


def socket_path(token: str) -> Path:
    """Path of the socket of ``token``, in a folder of this user alone.

    A run keeps it for good, so it lies in TMPDIR only where /tmp can't be used: batch systems
    remove that folder with the job that began the run. Raises InvalidArgumentError when neither
    can be used.
    """
    name = f"troupe-{os.getuid()}"
    usual, other = _PLACE / name, Path(tempfile.gettempdir()) / name
    try:
        make_private(usual)
    except InvalidArgumentError:
        make_private(other)
        return other / f"{token}.sock"
    return usual / f"{token}.sock"


def make_private(folder: Path) -> None:
    """Make ``folder``, and parents of it that are gone, for this user alone.

    Raises InvalidArgumentError when another user could enter it, or put one in its place.
    """
    try:
        gone = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(gone):
            place.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        others = [
            place
            for place in (*folder.parents, *folder.resolve().parents)
            if _may_be_of_another(place)
        ]
    except OSError as error:
        raise InvalidArgumentError(
            f"the folder {folder}, from which this process judges, can't be made "
            f"({error.strerror}); make it for this user alone (mode 0700)"
        ) from error
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_own or status.st_mode & 0o077 or others:
        raise InvalidArgumentError(
            f"{others[0] if others else folder} is not a folder of this user alone; remove it, or "
            "set TMPDIR to a folder that is, for a new run"
        )


def _may_be_of_another(place: Path) -> bool:
    """Whether another user may have made ``place``, where everybody can make folders."""
    is_public = place.parent.stat().st_mode & stat.S_IWOTH
    return bool(is_public) and place.lstat().st_uid not in (0, os.getuid())


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    environment: CallerEnvironment


class _Handler(BaseHTTPRequestHandler):
    """``POST /reset`` and ``POST /step``; an error of Troupe's answers 422."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one call."""
        environment = cast("_Server", self.server).environment
        calls: Mapping[str, Callable[..., object]] = {
            "/reset": environment.reset,
            "/step": environment.step,
        }
        size = int(self.headers.get("Content-Length", "0"))
        call = calls.get(self.path)
        if call is None or size > MAX_BODY_BYTES:
            self._answer(404 if call is None else 413, {"message": self.path})
            return
        body: dict[str, Any] = json.loads(self.rfile.read(size))
        status, document = 200, None
        try:
            document = call(**body)
        except TroupeError as error:
            status, document = 422, {"reason": error.reason, "message": error.message}
        except Exception as error:  # else the caller would seem to have ended, and be asked again
            message = f"the judging process failed on {self.path}: {type(error).__name__}: {error}"
            status, document = 500, {"message": message}
        with suppress(ConnectionError):  # who asked may have given up
            self._answer(status, document)

    def _answer(self, status: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """No access log: the caller's terminal shows the job."""


class JudgeServer:
    """A context in which env processes can call ``environment``.

    Raises InvalidArgumentError when another process of this user judges for the same run, or when
    there can be no socket at ``path``. Folders of it that are gone are made again.
    """

    def __init__(self, environment: CallerEnvironment, path: Path) -> None:
        self._path = path
        self._environment = environment

    def __enter__(self) -> Self:
        size = len(os.fsencode(self._path))
        if size > _MAX_PATH_BYTES:
            raise InvalidArgumentError(
                f"{self._path} has {size} bytes, and the path of a Unix socket at most "
                f"{_MAX_PATH_BYTES}; set TMPDIR to a shorter one"
            )
        make_private(self._path.parent)
        if is_served(self._path):
            raise InvalidArgumentError(
                f"another process already judges this run ({self._path}); end it first"
            )
        self._path.unlink(missing_ok=True)
        self._server = _Server(str(self._path), _Handler)
        self._server.environment = self._environment
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


def is_served(path: Path) -> bool:
    """Whether a process answers at the socket ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True
