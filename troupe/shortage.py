"""What a machine says that lacks something for a while: disk, memory, file descriptors.

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


def is_shortage(error: BaseException) -> bool:
    """Whether ``error`` passes when the machine has again what it lacks.

    Example: ``is_shortage(OSError(errno.EMFILE, "Too many open files"))``.
    """
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _ERRNOS)
