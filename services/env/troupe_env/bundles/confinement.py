"""Confines a bundle's process before it loads anything: files, networks, processes, memory.

What is left: to read Python, the installed packages and the bundle; to listen on one socket, after
which ``refuse_names`` makes it the last. Writes no file, starts no program, opens no connection.
Never looks at what the process will run.
"""

import contextlib
import os
import resource
from collections.abc import Sequence

from troupe_env.bundles import landlock, syscalls
from troupe_env.sandbox.inside import kernel, seccomp

_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/urandom",
    "/dev/random",
)  # not /dev/zero: a shared mapping of it is memory that no limit counts
_SIGKILL = 9


def confine(readable: Sequence[str], socket_folder: str, *, memory_bytes: int) -> None:
    """Give up everything else, for good; raises OSError where the kernel can't hold it."""
    limit_process(memory_bytes)
    if os.geteuid() == 0:
        # Root could raise its limits again. A container's root may lack the right to give it up.
        with contextlib.suppress(PermissionError):
            kernel.drop_capabilities()
    landlock.restrict(
        [
            (landlock.READ_FILE | landlock.READ_DIR, [*_SYSTEM, *readable]),
            (landlock.READ_FILE | landlock.WRITE_FILE, ["/dev/null"]),
            (landlock.MAKE_SOCK, [socket_folder]),
        ]
    )
    seccomp.Filter(syscalls.assembled()).load()


def refuse_names() -> None:
    """Refuse every further name of a socket, which is a file; for all threads."""
    seccomp.Filter(syscalls.nameless()).load_everywhere()


def limit_process(memory_bytes: int) -> None:
    """The limits that every Linux has: memory, no core file; it ends with its parent.

    RLIMIT_DATA counts private memory. RLIMIT_AS would count all, but also the 64 MiB of addresses
    that the C library reserves for each thread's heap, and every library of torch.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
