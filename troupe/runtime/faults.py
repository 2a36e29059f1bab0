"""Named fault points in a process, at which a test may stop it, kill it, or fill its disk.

Owns the meaning of a fault file and nothing else. Without ``TROUPE_FAULTS_DIR`` a point costs one
comparison and does nothing. Never decides what the work does: it stops or it fails, as a machine
would.

Where ``TROUPE_FAULTS_DIR`` names a folder, the first process that reaches ``point`` while the file
``<folder>/<point>`` exists acts on the file's content:

* empty: the file is renamed to ``<point>.<pid>`` and the process stops itself with SIGSTOP, so
  the test that made the file knows that the process is exactly here, and may end it or continue it
  with any signal;
* ``enospc`` or ``edquot``: the point raises that ``OSError``, at each visit until the file is
  removed, as a full disk does; ``<point>.<pid>`` appears beside it.

``<point>@<at>`` asks for one visit among many, such as the one of step 2.
"""

import errno
import os
import signal
from functools import cache
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

_DISK_ERRORS = {"enospc": errno.ENOSPC, "edquot": errno.EDQUOT}


class FaultSettings(BaseSettings):
    """Where faults are requested (TROUPE_FAULTS_*); only tests set it."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_FAULTS_", extra="forbid", use_attribute_docstrings=True
    )

    dir: Path | None = None
    """Folder of fault files; unset: no fault is ever injected."""


def reached(point: str, at: str | int = "") -> None:
    """Obey the fault that is asked for at ``point``, if there is one. From any thread.

    Example: ``reached("trainer.checkpoint_staged", at=step)``.

    Raises:
        OSError: the file says that the disk is full.
    """
    folder = _folder()
    if folder is None:
        return
    for name in (point, f"{point}@{at}"):
        obey(folder, name)


def obey(folder: Path, name: str) -> None:
    """Act on the file ``name`` in ``folder``; do nothing without such a file."""
    request, acknowledgement = folder / name, folder / f"{name}.{os.getpid()}"
    try:
        kind = request.read_text().strip()
        if kind not in _DISK_ERRORS:
            request.rename(acknowledgement)
    except FileNotFoundError:
        return
    if kind in _DISK_ERRORS:
        acknowledgement.touch()
        code = _DISK_ERRORS[kind]
        raise OSError(code, os.strerror(code), name)
    os.kill(os.getpid(), signal.SIGSTOP)


@cache
def _folder() -> Path | None:
    """Read once: an environment does not change under a running process."""
    return FaultSettings().dir
