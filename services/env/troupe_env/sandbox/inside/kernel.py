"""Linux calls that the standard library lacks, each raising OSError with its name.

The library handle keeps the interpreter lock, so that a forking call returns into a process whose
interpreter is whole. Never decides what to isolate.
"""

import ctypes
import itertools
import os
import platform

_libc = ctypes.PyDLL(None, use_errno=True)
# Bound and typed here: what a fork does first is paid for by each, page by page that it touches.
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_clone = ctypes.PyDLL(None, use_errno=True).syscall
_clone.restype, _clone.argtypes = ctypes.c_long, [ctypes.c_long, *[ctypes.c_ulong] * 5]
_before_fork = ctypes.pythonapi.PyOS_BeforeFork
_after_fork_in_child = ctypes.pythonapi.PyOS_AfterFork_Child
_after_fork_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
for _hook in (_before_fork, _after_fork_in_child, _after_fork_in_parent):
    _hook.restype = None

CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 23, 24, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

_SIGCHLD = 17
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_X86 = platform.machine() == "x86_64"
_NR_CLONE, _NR_PIVOT_ROOT, _NR_CAPSET = (56, 155, 126) if _X86 else (220, 41, 91)
_NR_SYSLOG = 103 if _X86 else 116
_NR_SECCOMP = 317 if _X86 else 277
_NR_MOUNT_SETATTR = 442
_SET_MODE_FILTER, _TSYNC = 1, 1
_SECUREBITS = 0b11101111  # NOROOT, NO_SETUID_FIXUP, no ambient set; all locked


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces in ``flags`` for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def fork_into(flags: int) -> int:
    """``os.fork`` whose child starts in new namespaces, or with ``CLONE_PARENT`` as a child of this
    process's parent; only for single-threaded processes.

    The child's C library keeps the parent's idea of its thread id: it must fork again before it
    runs anything but this package.
    """
    _before_fork()
    pid = _clone(_NR_CLONE, flags | _SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        _after_fork_in_child()
        return 0
    number = ctypes.get_errno()
    _after_fork_in_parent()
    if pid < 0:
        raise OSError(number, f"clone: {os.strerror(number)}")
    return int(pid)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """``mount(2)``."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(result, f"mount {kind or source} on {target}")


def umount_lazily(target: str) -> None:
    """Detach a mount."""
    _check(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make ``new_root`` the root of this mount namespace."""
    result = _libc.syscall(ctypes.c_long(_NR_PIVOT_ROOT), new_root.encode(), put_old.encode())
    _check(result, "pivot_root")


def set_mount_attributes(target: str, attributes: int) -> None:
    """Add ``MS_RDONLY | MS_NOSUID | MS_NODEV`` to a mount and all mounts below it."""
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_NR_MOUNT_SETATTR), ctypes.c_long(_AT_FDCWD), target.encode(),
        ctypes.c_ulong(_AT_RECURSIVE), request, ctypes.c_size_t(32),
    )  # fmt: skip
    _check(result, f"mount_setattr {target}")


def prctl(option: int, value: int, pointer: int = 0) -> int:
    """``prctl(2)``."""
    result = _libc.prctl(option, value, pointer, 0, 0)
    return result if result >= 0 else _check(result, f"prctl {option}")


def filter_all_threads(program: int) -> None:
    """Bind every thread of this process by the seccomp filter at the address ``program``."""
    result = _libc.syscall(
        ctypes.c_long(_NR_SECCOMP), ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_TSYNC),
        ctypes.c_void_p(program),
    )  # fmt: skip
    _check(-abs(result), "seccomp of all threads")  # above 0: a thread that has another filter


def _num_capabilities() -> int:
    """How many this kernel knows."""
    return next(n for n in itertools.count() if _libc.prctl(PR_CAPBSET_READ, n, 0, 0, 0) < 0)


_CAPABILITIES = range(_num_capabilities())


def drop_capabilities() -> None:
    """Give up every capability, for this process and all that it starts."""
    prctl(PR_SET_SECUREBITS, _SECUREBITS)
    for capability in _CAPABILITIES:
        prctl(PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.syscall(ctypes.c_long(_NR_CAPSET), header, nothing), "capset")


def set_hostname(name: str) -> None:
    """``sethostname(2)``."""
    _check(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def kernel_log() -> str:
    """What the kernel says of itself; empty where that is refused."""
    buffer = ctypes.create_string_buffer(1 << 16)
    size = _libc.syscall(
        ctypes.c_long(_NR_SYSLOG), ctypes.c_long(3), buffer, ctypes.c_size_t(len(buffer))
    )
    return buffer.raw[: max(0, size)].decode(errors="replace")
