"""A folder of this process alone, which the next life removes if this one is killed.

Owns the folder and its lock. Whose lock is held is alive, however old the folder is.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_TRIES = 10


class HeldFolder:
    """A new folder below ``parent``; making it removes what killed lives left under ``prefix``.

    A prefix is never that of folders without a lock, whose owners may be at work.

    Raises:
        OSError: ``parent`` can't be written.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        for folder in parent.glob(f"{prefix}*"):
            _remove_unless_held(folder)
        self.path, self._lock = _held(parent, prefix)

    def close(self) -> None:
        """Remove the folder. Called once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _held(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and its lock, which is held until this process ends, however it ends."""
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Another process may have taken it for a leftover before it was locked.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _is_locked_by(lock) and folder.is_dir():
                return folder, lock
            os.close(lock)
    raise OSError(f"{_TRIES} new folders were removed at once")


def _remove_unless_held(folder: Path) -> None:
    """Remove another life's folder, unless its process is alive and holds the lock."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # It went, or is another user's in a folder for all such as /tmp.
        return
    try:
        if _is_locked_by(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_locked_by(lock: int) -> bool:
    """Take the lock of an open folder; False when another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
