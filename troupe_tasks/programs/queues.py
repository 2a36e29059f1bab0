"""Whether bytes are under way between the endpoint and a program, as the kernel's queues tell.

Asks the kernel for the run's sockets by their ports (``sock_diag``, no privilege needed), and
reads /proc/net/tcp where it does not answer that: the kernel walks its whole table for the file.
"""

import errno
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_TABLE = Path("/proc/net/tcp")
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ERROR, _REQUEST = 4, 20, 2, 1
_LISTEN = 10
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ASKED = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_SOCKET = struct.Struct("!HH4s12x4s12xI8s")  # ports and addresses, interface, any cookie
_ANSWERED = struct.Struct("=BB54xII")  # family, state; bytes to be read, and to be acknowledged
_OWNED = struct.Struct("=68xI")  # the inode
_LOOPBACK = socket.inet_aton("127.0.0.1")
_ANY = bytes(4)
_NO_COOKIE = b"\xff" * 8
_TIMEOUT_S = 1.0


def bytes_under_way(port: int, ports: frozenset[int]) -> bool:
    """Whether a byte between ``port`` and one of ``ports`` is not acknowledged or not read yet.

    So does a client that has knocked at ``port`` and was not let in.
    """
    try:
        return asked_of_kernel(port, ports)
    except OSError:  # another kernel, or one without the module
        return read_of_table(port, ports)


def asked_of_kernel(port: int, ports: frozenset[int]) -> bool:
    """By ``sock_diag``, one look-up for each socket; OSError where the kernel has none."""
    pairs = [(port, 0), *((port, peer) for peer in ports), *((peer, port) for peer in ports)]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        for number, (local, remote) in enumerate(pairs):
            kernel.send(_request(number, local, remote))
            state, num_unread, num_unsent = _answer(kernel.recv(4096))
            if number == 0 and state != _LISTEN:
                raise OSError(errno.ENOENT, "the kernel does not know a socket that listens")
            # Of a socket that listens the second number is its bound on the first.
            if num_unread or (num_unsent and state != _LISTEN):
                return True
    return False


def socket_of(port: int, remote: int) -> int:
    """Inode of the loopback socket from ``port`` to ``remote``; 0 where the kernel knows none."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_S)
            kernel.send(_request(0, port, remote))
            message = kernel.recv(4096)
    except OSError:
        return 0
    is_found = _HEADER.unpack_from(message)[1] != _ERROR
    return _OWNED.unpack_from(message, _HEADER.size)[0] if is_found else 0


def read_of_table(port: int, ports: frozenset[int]) -> bool:
    """By /proc/net/tcp, whatever the number of the machine's sockets."""
    return any(
        queues != "00000000:00000000"
        for local, remote, queues in _rows(_TABLE.read_text().splitlines()[1:])
        if (local == port and (remote == 0 or remote in ports))
        or (remote == port and local in ports)
    )


def _request(number: int, local: int, remote: int) -> bytes:
    to = _LOOPBACK if remote else _ANY
    body = _ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    body += _SOCKET.pack(local, remote, _LOOPBACK, to, 0, _NO_COOKIE)
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST, number, 0) + body


def _answer(message: bytes) -> tuple[int, int, int]:
    """State, bytes unread and bytes unacknowledged; zeros where there is no such socket."""
    if _HEADER.unpack_from(message)[1] != _ERROR:
        _, state, num_unread, num_unsent = _ANSWERED.unpack_from(message, _HEADER.size)
        return state, num_unread, num_unsent
    code = -struct.unpack_from("=i", message, _HEADER.size)[0]
    if code != errno.ENOENT:
        raise OSError(code, "the kernel does not tell of sockets")
    return 0, 0, 0


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    for line in lines:
        fields = line.split()
        local, remote = (int(fields[at].rpartition(":")[2], 16) for at in (1, 2))
        yield local, remote, fields[4]
