"""Removes the files of run folders: a folder is renamed away first, so it is never half there.

Owns the folder ``.discarded``. Never decides which folders go.
"""

import secrets
import shutil
from pathlib import Path

from troupe.durable import sync
from troupe.errors import ConflictError

DISCARDED = ".discarded"


def discard(run_dir: Path) -> None:
    """Remove what is in a run folder. It stays, empty, so that its name is not used again.

    Raises:
        OSError: it can't be renamed; nothing was removed.
        ConflictError: a link lies where discarded folders go.
    """
    bin_dir = run_dir.parent / DISCARDED
    bin_dir.mkdir(exist_ok=True)
    if bin_dir.is_symlink():
        raise ConflictError(f"{bin_dir} is a link; remove it, run folders are moved there")
    moved = bin_dir / f"{run_dir.name}.{secrets.token_hex(4)}"
    run_dir.rename(moved)
    run_dir.mkdir()
    sync(run_dir.parent)
    shutil.rmtree(moved, ignore_errors=True)


def remove_discarded(runs_dir: Path) -> None:
    """Remove what a process that was killed left in ``.discarded``."""
    bin_dir = runs_dir / DISCARDED
    if bin_dir.is_dir() and not bin_dir.is_symlink():
        for path in bin_dir.iterdir():
            shutil.rmtree(path, ignore_errors=True)
