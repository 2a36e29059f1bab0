"""System calls that a bundle's process is refused: networks, other processes, programs, the kernel.

A list of what is refused, unlike the sandbox's list of what is allowed: the process serves gRPC and
imports packages, and its author has a key. Standard library alone.
"""

import errno
import os
import platform
import struct

# name:number, on x86-64 and then arm64 where it has the call.
_REFUSED = """
    connect:42:203 execve:59:221 execveat:322:281 ptrace:101:117 process_vm_readv:310:270
    process_vm_writev:311:271 mount:165:40 umount2:166:39 unshare:272:97 setns:308:268 bpf:321:280
    chroot:161:51 keyctl:250:219 add_key:248:217 request_key:249:218 userfaultfd:323:282
    perf_event_open:298:241 pidfd_open:434:434 pidfd_send_signal:424:424 pidfd_getfd:438:438
    kcmp:312:272 open_by_handle_at:304:265 syslog:103:116 shmget:29:194 shmat:30:196 msgget:68:186
    semget:64:190 mq_open:240:180 io_uring_setup:425:425 sched_setscheduler:144:119
    setpriority:141:140 sync:162:81 fork:57 vfork:58
"""
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_SIGNALS = ((62, 129), (234, 131))  # kill, tgkill: to this process alone
_TKILL = (200, 130)
_AF_UNIX, _SOCK_STREAM, _SOCK_KIND = 1, 1, 0xF
_CLONE_THREAD = 0x00010000
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH, _ARGS = 0, 4, 16
_X32 = 0x40000000


def assembled(machine: str = "") -> bytes:
    """The filter for this machine and this process; raises OSError where there is none."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no seccomp filter is known for {machine}")
    audit, column = _ARCHITECTURES[machine]
    ops = [
        _op(_LOAD, _ARCH),
        _op(_EQUAL, audit, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NR),
        _op(_AT_LEAST, _X32, 0, 1),
        _op(_RETURN, _KILL),
    ]
    for entry in _REFUSED.split():
        numbers = entry.split(":")[1:]
        if column < len(numbers):
            ops += _refused(int(numbers[column]), errno.EPERM)
    ops += _refused(_TKILL[column], errno.EPERM)
    ops += _refused(_CLONE3[column], errno.ENOSYS)  # the C library then calls clone
    ops += _only_if(_CLONE[column], [_op(_LOAD, _ARGS), _op(_ANY_BIT, _CLONE_THREAD, 1, 0)])
    stream = [
        _op(_LOAD, _ARGS + 8),
        _op(_AND, _SOCK_KIND),
        _op(_EQUAL, _SOCK_STREAM, 0, 2),
        _op(_LOAD, _ARGS),
        _op(_EQUAL, _AF_UNIX, 1, 0),
    ]
    ops += _only_if(_SOCKET[column], stream)
    for numbers in _SIGNALS:
        ops += _only_if(numbers[column], [_op(_LOAD, _ARGS), _op(_EQUAL, os.getpid(), 1, 0)])
    return b"".join([*ops, _op(_RETURN, _ALLOW)])


def _refused(number: int, error: int) -> list[bytes]:
    return [_op(_EQUAL, number, 0, 1), _op(_RETURN, _ERRNO | error)]


def _only_if(number: int, tests: list[bytes]) -> list[bytes]:
    """Allow the call where the last of ``tests`` jumps over the refusal behind them."""
    body = [*tests, _op(_RETURN, _ERRNO | errno.EPERM), _op(_RETURN, _ALLOW)]
    return [_op(_EQUAL, number, 0, len(body)), *body]


def _op(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)
