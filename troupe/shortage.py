"""What a machine says that lacks something for a while: disk, memory, threads, file descriptors.

Owns the list of such errors. Never decides what whoever meets one does: it is a machine's failure,
so the work is tried again and never counts against the job or an agent.
"""

import errno

_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
_WORDS = ("can't start new thread", "DefaultCPUAllocator: can't allocate memory")
"""Python and torch (on the CPU) say these with a bare RuntimeError."""


def is_shortage(error: BaseException) -> bool:
    """Whether ``error`` passes when the machine has again what it lacks.

    Example: ``is_shortage(OSError(errno.EMFILE, "Too many open files"))``.
    """
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in _WORDS)
    return isinstance(error, MemoryError)
