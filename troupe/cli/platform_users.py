"""Who in this process uses the platform of a runs folder, so that the last one stops it.

Never starts or stops anything.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class PlatformUsers:
    """The calls of this process that use one platform.

    ``lock`` is held while one of them starts or stops it, so that none begins on a platform that
    another one is about to stop. ``known``: jobs that were there before, and those of the calls.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    num: int = 0
    is_started_here: bool = False
    known: set[str] = field(default_factory=set[str])


_BY_FOLDER: dict[Path, PlatformUsers] = {}


def users_of(runs_dir: Path) -> PlatformUsers:
    """Those of the platform in ``runs_dir``."""
    return _BY_FOLDER.setdefault(runs_dir.resolve(), PlatformUsers())
