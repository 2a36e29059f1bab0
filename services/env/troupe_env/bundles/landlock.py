"""Landlock by its three system calls: what files this process may still open, and no TCP at all.

Needs no privilege (Linux 5.13 on); holds for this thread and whatever it starts, for good. Standard
library alone: a bundle's process is confined before it imports anything else.
"""

import ctypes
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # of every architecture
_VERSION = 1
_PATH_BENEATH = 1
WRITE_FILE, READ_FILE, READ_DIR, MAKE_SOCK = 1 << 1, 1 << 2, 1 << 3, 1 << 9
_NUM_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Rights that an ABI knows; 16 from the fifth on. All of them are withdrawn."""
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Version of Landlock in this kernel; 0 without it."""
    return max(0, _libc.syscall(_CREATE, None, 0, _VERSION))


def restrict(rules: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Withdraw every right to files but those in ``rules``: (rights, paths with what is below).

    A path that does not exist is left out. Raises OSError where the kernel has no Landlock.
    """
    version = abi()
    if not version:
        raise OSError("this kernel has no Landlock (Linux 5.13, with `landlock` in lsm=)")
    rights = (1 << _NUM_FS_RIGHTS.get(version, 16)) - 1
    handled = (ctypes.c_uint64 * 3)(
        rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _check(_libc.syscall(_CREATE, handled, ctypes.c_size_t(size), 0))
    try:
        for allowed, paths in rules:
            for path in paths:
                _add(ruleset, path, allowed & rights)
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check(_libc.syscall(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _add(ruleset: int, path: str, allowed: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not Path(path).is_dir():
            allowed &= WRITE_FILE | READ_FILE  # the kernel refuses rights of folders for a file
        rule = allowed.to_bytes(8, "little") + place.to_bytes(4, "little")
        _check(_libc.syscall(_ADD, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(place)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result
