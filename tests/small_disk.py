"""A small file system of a test's own, and how it is filled: real ENOSPC, no injected error."""

import os
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PIECE = 1 << 20


@contextmanager
def small_disk(folder: Path, size_bytes: int, *, num_files: int = 10_000) -> Generator[Path]:
    """Mount a tmpfs of ``size_bytes`` at ``folder``; skips, with the reason, without root."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},nr_inodes={num_files},mode=0755"
    mounting = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here (it takes root): {done.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=30, check=True)


class Ballast:
    """A file of somebody else that takes a file system's room."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all but ``leave_bytes``, also what was freed since."""
        with self._path.open("ab", buffering=0) as file:
            piece = _PIECE
            while (free := self._free() - leave_bytes) > 0:
                try:
                    size = os.fstat(file.fileno()).st_size
                    os.posix_fallocate(file.fileno(), size, min(free, piece))
                except OSError:
                    if piece <= 1:
                        return
                    piece //= 2

    def hold(self, for_s: float, *, leave_bytes: int = 0) -> None:
        """Stay so for ``for_s``: what the others free meanwhile is taken too."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.fill(leave_bytes=leave_bytes)
            time.sleep(0.2)

    def free(self) -> None:
        """Give everything back."""
        with suppress(FileNotFoundError):
            self._path.unlink()

    def _free(self) -> int:
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize
