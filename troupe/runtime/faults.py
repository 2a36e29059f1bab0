"""Named places in a process at which a test may stop it, kill it, or fill its disk.

Owns the meaning of a fault file and nothing else. Without ``TROUPE_FAULTS_DIR`` a place costs one
comparison and does nothing. Must never decide what the work does: it stands still or it fails, as
a machine would.

Where ``TROUPE_FAULTS_DIR`` names a folder, the first process that reaches ``point`` while the file
``<folder>/<point>`` exists obeys what the file says:

* nothing: the file is renamed to ``<point>.<pid>`` and the process stops itself with SIGSTOP, so
  whoever put the file there knows that the process stands exactly here, and may end it, or let it
  go on, with any signal;
* ``enospc`` or ``edquot``: the place raises that ``OSError``, at each visit until the file is
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
    """Where faults are asked for (TROUPE_FAULTS_*); tests alone set it."""

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
    """Do what the file ``name`` in ``folder`` says; nothing without such a file."""
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
