"""Recognises errors of a machine that is short of disk, memory, threads or file descriptors.

Owns the list of such errors. Never decides what a caller does about one: it is a machine's failure,
so the work is retried and never counts against the job or an agent.
"""

import errno
from collections.abc import Mapping

from google.protobuf.message import DecodeError, EncodeError

from troupe.errors import TroupeError

_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ENOMEM,
        errno.EAGAIN,  # no process or thread can be started
        errno.EMFILE,
        errno.ENFILE,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
_PHRASES: Mapping[type[Exception], tuple[str, ...]] = {
    RuntimeError: ("can't start new thread", "Cannot allocate memory", "std::bad_alloc"),
    DecodeError: ("Arena alloc failed",),
    EncodeError: ("Failed to serialize proto",),
}
"""Errors that mean many things, and the words in which Python, torch (on the CPU) and protobuf say
that there is no memory."""
_FULL = ("No space left on device", "Disk quota exceeded", "database or disk is full")
"""How libraries with errors of their own (safetensors, SQLite, torch) say that a disk is full."""


def is_transient(error: BaseException) -> bool:
    """Whether ``error`` passes once the machine has again what it lacks.

    Example: ``is_transient(OSError(errno.EMFILE, "Too many open files"))``.
    """
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    if any(phrase in str(error) for phrase in _FULL):
        return True
    for kind, words in _PHRASES.items():
        if isinstance(error, kind):
            return any(phrase in str(error) for phrase in words)
    return isinstance(error, MemoryError)


def is_of_code(error: BaseException) -> bool:
    """Whether the code that was called is to blame: it said nothing on purpose, by a TroupeError,
    and the machine lacks nothing."""
    return not isinstance(error, TroupeError) and not is_transient(error)
