"""The process that cells are forked from: it gets open descriptors, and never a byte of any run.

So whatever an earlier run read, computed or printed is in no cell's memory. A cell reads its own
program after the fork. Cells are children of the worker, which waits for and kills them.
"""

import os
import socket
import struct
from collections.abc import Callable
from typing import NoReturn

from . import cell, guard, kernel
from .cell import Ends, RunContext

_PID = struct.Struct("=q")
_ANSWER_S = 15.0


class Template:
    """The worker's end: one template process, asked for one cell at a time."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._connection.settimeout(_ANSWER_S)

    def ask(self, ends: Ends) -> None:
        """Have a cell started with these descriptors. Raises OSError."""
        socket.send_fds(self._connection, [b"f"], list(ends.numbers))

    def answer(self) -> int:
        """The process number of the cell that was asked for. Raises OSError."""
        answer = self._connection.recv(_PID.size)
        if not answer:
            raise ConnectionResetError("the template process has ended")
        pid = int(_PID.unpack(answer)[0])
        if pid < 0:
            raise OSError(-pid, f"clone: {os.strerror(-pid)}")
        return pid


def serve(connection: socket.socket, context: RunContext, flags: int) -> Callable[[], NoReturn]:
    """Fork cells until the worker is gone; returns in the process of a program, with what it runs.

    It returns there rather than runs it, so that no frame of this package is above a program but
    those that run it. ``flags`` are the new namespaces of a cell.
    """
    cell.keep_only([connection.fileno(), context.proc, *context.joins])
    guard.end_with_parent(context.worker_pid)
    while True:
        order, numbers, _, _ = socket.recv_fds(connection, 1, 3, socket.MSG_CMSG_CLOEXEC)
        if not order:
            os._exit(0)
        ends = Ends(*numbers)
        try:
            pid = kernel.fork_into(flags | kernel.CLONE_PARENT)
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            connection.close()
            return cell.live(ends, context)
        for number in numbers:
            os.close(number)
        connection.send(_PID.pack(pid))
