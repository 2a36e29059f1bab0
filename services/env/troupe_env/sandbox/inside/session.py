"""The process of one long-lived command: confines itself, starts the command in a cell, waits.

It never runs a line of the command, and has no more than one. The network namespace is the
command's alone: its loopback has one listener, whose other side is the service's.
"""

import fcntl
import json
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import cell, kernel, zygote
from .seccomp import Filter, assemble

_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING


def start() -> Callable[[], NoReturn]:
    """Entry point: the config is the one argument. Returns only in the command's process."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    sys.argv = [""]
    control = socket.socket(fileno=config["control"])
    try:
        worker = _confined(config, control)
    except OSError as error:
        sys.exit(str(error))
    os.environ.clear()
    os.environ.update(config["environment"])
    pid = kernel.fork_into(zygote.OF_A_CELL)
    if pid == 0:
        outputs = os.open("/dev/null", os.O_WRONLY), os.open("/dev/null", os.O_WRONLY)
        return cell.live(cell.Ends(*outputs, control.fileno()), worker)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _await(pid, control)
    sys.exit(0)


def _confined(config: dict[str, Any], control: socket.socket) -> cell.RunContext:
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    uid: int = config["uid"] if os.geteuid() == 0 else os.geteuid()

    def listen() -> None:
        _raise_loopback()
        with socket.create_server(("127.0.0.1", config["port"]), backlog=128) as listener:
            socket.send_fds(control, [b"L"], [listener.fileno()])

    uid = zygote.enter_namespaces(config, proc, uid, listen)
    worker = cell.RunContext(
        is_namespaced=True,
        worker_pid=os.getpid(),
        runs_folder="/tmp",
        uid=uid,
        proc=proc,
        joins=config["joins"],
    )
    worker.filter = Filter(assemble(is_long_lived=True))
    return worker


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14s", b"lo", _UP_AND_RUNNING, b""))


def _await(pid: int, control: socket.socket) -> None:
    """Return when the command has ended, or the service is gone; then the kernel ends the rest."""
    child = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(child, select.POLLIN)
    poller.register(control, select.POLLHUP)
    poller.poll()
