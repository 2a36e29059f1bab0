"""Removes the files of run folders: a folder is renamed away first, so it is never half there.

Owns the folder ``.discarded``. Never decides which folders go.
"""

import secrets
import shutil
from pathlib import Path

from troupe.durable import sync
from troupe.errors import ConflictError
from troupe_router.jobs.job_file import is_job_id

DISCARDED = ".discarded"


def discard(run_dir: Path) -> None:
    """Remove what is in a run folder. It stays, empty, so that its name is not used again.

    Raises:
        OSError: it can't be renamed; nothing was removed.
        ConflictError: a link lies where discarded folders go.
    """
    bin_dir = run_dir.parent / DISCARDED
    if bin_dir.is_symlink():
        raise ConflictError(f"{bin_dir} is a link; remove it, run folders are moved there")
    bin_dir.mkdir(exist_ok=True)
    moved = bin_dir / f"{run_dir.name}.{secrets.token_hex(4)}"
    run_dir.rename(moved)
    _remove(moved, run_dir)


def remove_discarded(runs_dir: Path) -> None:
    """Remove what a process that was killed left in ``.discarded``."""
    bin_dir = runs_dir / DISCARDED
    if bin_dir.is_dir() and not bin_dir.is_symlink():
        for path in bin_dir.iterdir():
            name = path.name.rpartition(".")[0]
            if is_job_id(name) and path.is_dir() and not path.is_symlink():
                _remove(path, runs_dir / name)


def _remove(moved: Path, run_dir: Path) -> None:
    """Remove ``moved``, and leave an empty folder where it was."""
    try:
        run_dir.mkdir(exist_ok=True)
    except OSError:  # the disk is full: the folder itself goes back, emptied
        for path in moved.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        moved.rename(run_dir)
    sync(run_dir.parent)
    shutil.rmtree(moved, ignore_errors=True)
