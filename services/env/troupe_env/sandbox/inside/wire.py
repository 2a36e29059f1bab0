"""Frames between the service and a worker: a JSON header and raw bytes. Never pickle.

Both ends import this module, so it knows the standard library only.
"""

import json
import select
import socket
import struct
import time
from typing import Any

MAX_FRAME_BYTES = 1 << 30
_HEAD = struct.Struct("!II")


class Closed(Exception):  # noqa: N818 (an event, not a failure of this code)
    """The other end is gone."""


class TooLate(Exception):  # noqa: N818
    """The other end did not answer in time."""


def send(
    connection: socket.socket, header: dict[str, Any], body: bytes | bytearray, timeout_s: float
) -> None:
    """Send one frame, within ``timeout_s``."""
    text = json.dumps(header).encode()
    data = memoryview(_HEAD.pack(len(text), len(body)) + text + body)
    deadline = time.monotonic() + timeout_s
    while data:
        _wait(connection, select.POLLOUT, deadline)
        try:
            data = data[connection.send(data, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise Closed(str(error)) from error


def receive(connection: socket.socket, timeout_s: float | None) -> tuple[dict[str, Any], bytearray]:
    """One frame, without a second copy of it; ``timeout_s`` None waits for one or the end."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    num_header, num_body = _HEAD.unpack(_exactly(connection, _HEAD.size, deadline))
    if num_header + num_body > MAX_FRAME_BYTES:
        raise Closed(f"a frame of {num_header + num_body} bytes is not one of ours")
    header = json.loads(_exactly(connection, num_header, deadline))
    return header, _exactly(connection, num_body, deadline)


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytearray:
    data, at = bytearray(size), 0
    while at < size:
        _wait(connection, select.POLLIN, deadline)
        try:
            part = connection.recv_into(memoryview(data)[at:], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        except OSError as error:
            raise Closed(str(error)) from error
        if not part:
            raise Closed("end of stream")
        at += part
    return data


def _wait(connection: socket.socket, event: int, deadline: float | None) -> None:
    poller = select.poll()
    poller.register(connection, event)
    left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    if not poller.poll(left_ms):
        raise TooLate
