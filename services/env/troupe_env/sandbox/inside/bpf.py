"""Seccomp filters as BPF: operations, and the check of the architecture that each begins with.

Assembled by hand, because the interpreter that runs programs has the standard library only.
"""

import errno
import platform
import struct

LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARGS = 16
AF_UNIX = 1
# SOCK_STREAM with and without CLOEXEC and NONBLOCK. A datagram socket can get a name without bind,
# which lives on in the network namespace; a stream can't.
STREAMS = (1, 0x80001, 0x801, 0x80801)
IOCTLS = (0x5401, 0x5413, 0x540F, 0x541B, 0x5421, 0x5450, 0x5451)  # TC*, FION*, FIO*CLEX
_NR, _ARCH = 0, 4
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_X32_BIT = 0x40000000


def op(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    """One operation; jumps count the operations that are skipped."""
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


def begun(machine: str = "") -> tuple[list[bytes], int]:
    """Operations that end a process of another architecture and load the call's number.

    With them the column of ``machine`` (by default this one) in lists of ``name:x86-64:arm64``.
    Raises OSError for a machine that is not known.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no seccomp filter is known for {machine}")
    audit, column = _ARCHITECTURES[machine]
    ops = [
        op(LOAD, _ARCH),
        op(EQUAL, audit, 1, 0),
        op(RETURN, KILL),
        op(LOAD, _NR),
        op(AT_LEAST, _X32_BIT, 0, 1),
        op(RETURN, KILL),
    ]
    return ops, column


def numbers(listed: str, column: int) -> list[int]:
    """Numbers of the calls in ``listed`` that the machine of ``column`` has."""
    entries = [entry.split(":")[1:] for entry in listed.split()]
    return [int(entry[column]) for entry in entries if column < len(entry)]


def answered(number: int, error: int) -> list[bytes]:
    """The call ``number`` fails with ``error``."""
    return [op(EQUAL, number, 0, 1), op(RETURN, ERRNO | error)]


def only_if(number: int, tests: list[bytes]) -> list[bytes]:
    """Allow the call where the last of ``tests`` jumps over the refusal behind them."""
    body = [*tests, op(RETURN, ERRNO | errno.EPERM), op(RETURN, ALLOW)]
    return [op(EQUAL, number, 0, len(body)), *body]


def one_of(number: int, allowed: dict[int, tuple[int, ...]]) -> list[bytes]:
    """Allow the call when each argument (by position) has one of its values."""
    body: list[bytes] = []
    for argument, values in allowed.items():
        body.append(op(LOAD, ARGS + 8 * argument))
        body += [op(EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
        body.append(op(RETURN, ERRNO | errno.EPERM))
    body.append(op(RETURN, ALLOW))
    return [op(EQUAL, number, 0, len(body)), *body]
