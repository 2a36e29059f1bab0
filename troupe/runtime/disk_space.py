"""Measures whether a folder's file system has room: the one place that decides that a disk is full.

Owns the limits and the words. Never frees space and never decides what waits for it.
"""

import errno
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

FULL_BYTES = 16 << 20
"""With fewer free bytes a disk counts as full: a restart, a log and a record still fit."""
_FULL_FILES = 64
"""With fewer free inodes too; file systems that make them as needed report none at all."""
_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Shortage:
    """A time without room: from ``began_at`` until ``ended_at`` (0: it lasts), Unix seconds."""

    began_at: float
    sentence: str
    ended_at: float = 0.0


class DiskSpace:
    """The room on the file system of ``folder``, as the last ``look`` found it.

    Room is short below ``needed_bytes`` (at most a tenth of the file system) and is there again at
    twice as much, so that whoever waits does not go on and stop in turn.

    Example: ``DiskSpace(Path("runs"), needed_bytes=FULL_BYTES).look()``.
    """

    def __init__(self, folder: Path, *, needed_bytes: int) -> None:
        self.folder = folder
        self.free_bytes = 0
        self.total_bytes = 0
        self.shortage: Shortage | None = None
        self.short_at = 0.0
        self._needed_bytes = needed_bytes

    @property
    def is_short(self) -> bool:
        """Whether the last look found too little room."""
        return self.shortage is not None and not self.shortage.ended_at

    def look(self) -> bool:
        """Measure; whether room is short. From any thread.

        Raises:
            OSError: the file system does not answer.
        """
        found = os.statvfs(self.folder)
        self.free_bytes, self.total_bytes = (
            blocks * found.f_frsize for blocks in (found.f_bavail, found.f_blocks)
        )
        was_short, now = self.is_short, time.time()
        needed = min(self._needed_bytes, self.total_bytes // 10) * (2 if was_short else 1)
        lacks_files = found.f_files > 0 and found.f_favail < _FULL_FILES
        if self.free_bytes < needed or lacks_files:
            began_at = self.shortage.began_at if was_short and self.shortage else now
            self.shortage = Shortage(began_at, self._sentence(needed, lacks_files=lacks_files))
            self.short_at = now
        elif was_short and self.shortage is not None:
            self.shortage = replace(self.shortage, ended_at=now)
        return self.is_short

    def was_short_since(self, at: float) -> bool:
        """Whether room is short, or was after ``at``, Unix seconds, as far as was looked."""
        return self.shortage is not None and not 0 < self.shortage.ended_at < at

    @property
    def sentence(self) -> str:
        """What is short, and what to do; empty while nothing is."""
        return self.shortage.sentence if self.is_short and self.shortage is not None else ""

    def _sentence(self, needed: int, *, lacks_files: bool) -> str:
        lack = (
            "no free inodes"
            if lacks_files
            else f"{self.free_bytes / 2**20:.0f} MiB free and needs {needed / 2**20:.0f} MiB"
        )
        return (
            f"The disk of {self.folder} has {lack}: no step begins until then, nothing is lost, "
            "and the work goes on by itself. Free space there."
        )


def is_full(error: BaseException) -> bool:
    """Whether a write failed because a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in _ERRNOS
