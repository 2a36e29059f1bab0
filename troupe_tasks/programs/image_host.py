"""Runs agent programs in a container of the program's own image, for the env service beside it.

    python image_host.py SOCKET

Standard library, with host.py and activity.py in the same folder: Troupe is not in that image. A
connection begins with one line. {"serve": environment, "folder": ..}: the lines of `host.py serve`
follow. {"watch": pid}: of that run; each further line, "look" or "kill", is answered by one. A run
ends with the connection that began it, and with the one that watches it.
"""

import dataclasses
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, TextIO

FILES = ("host.py", "activity.py", "image_host.py")


def listen(path: str) -> None:
    """Answer each connection by a process of its own, for as long as the container lives."""
    Path(path).unlink(missing_ok=True)
    os.umask(0o007)  # the group is the env service's too
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the first process has no default
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is left to it
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(128)
        while True:
            connection = server.accept()[0]
            if not os.fork():
                try:
                    server.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    answer(connection)
                finally:
                    os._exit(0)
            connection.close()


def answer(connection: socket.socket) -> None:
    """One connection, to its end."""
    first: dict[str, Any] = json.loads(first_line(connection))
    if "watch" in first:
        told = connection.makefile("w", encoding="utf-8")
        watch(first["watch"], connection.makefile("r", encoding="utf-8"), told)
        return
    os.setsid()
    for number in (0, 1):
        os.dup2(connection.fileno(), number)
    os.chdir(first["folder"] or "/tmp")
    environment = {**first["serve"], "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")}
    host = str(Path(__file__).with_name("host.py"))
    os.execve(sys.executable, [sys.executable, "-u", host, "serve"], environment)


def first_line(connection: socket.socket) -> bytes:
    """One line, and no byte of the next: that is for whoever takes the connection over."""
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            raise SystemExit(0)
        line += part
    return line


def watch(pid: int, asked: TextIO, told: TextIO) -> None:
    """Say how run ``pid`` is whenever it is asked; end it when it is told to, or left alone."""
    activity = importlib.import_module("activity")
    run = activity.RunProcess(pid, activity.start_time(pid))
    try:
        for line in asked:
            if line.strip() == "kill":
                run.kill()
            seen = activity.look(pid) if run.is_alive else None
            threads = None if seen is None else dataclasses.asdict(seen)["threads"]
            told.write(json.dumps({"is_alive": run.is_alive, "threads": threads}) + "\n")
            told.flush()
    finally:
        run.kill()


def copy_to(folder: Path) -> None:
    """Put what the image needs into ``folder``, which its container shares with the service."""
    for name in FILES:
        (folder / name).write_bytes(Path(__file__).with_name(name).read_bytes())


if __name__ == "__main__":
    if sys.argv[1] == "--copy-to":
        copy_to(Path(sys.argv[2]))
    else:
        listen(sys.argv[1])
