"""The page's files, read once and kept in memory, plain and compressed.

Owns what is under ``page/``; nothing outside it can be named. Never holds data of a job.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from troupe.errors import NotFoundError

PAGE = Path(__file__).parent / "page"
_COMPRESSED = ("text/", "image/svg", "application/json")
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain",
}
"""Defined here because the system's table differs between machines."""


@dataclass(frozen=True)
class PageFile:
    """One file as it is sent."""

    body: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes | None:
        """The body under gzip; None when that gains nothing."""
        if not self.media_type.startswith(_COMPRESSED):
            return None
        return gzip.compress(self.body, 6, mtime=0)


class PageFiles:
    """Reads the files under ``folder``. ``digest`` names one state of all of them."""

    def __init__(self, folder: Path = PAGE) -> None:
        self._folder = folder
        self._digest = ""
        self._read: dict[str, PageFile] = {}

    def refresh(self) -> str:
        """The present digest; a file that changed is read again. Costs one stat a file."""
        seen = hashlib.blake2b(digest_size=8)
        for name in self.names():
            stat = (self._folder / name).stat()
            seen.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        if seen.hexdigest() != self._digest:
            self._digest = seen.hexdigest()
            self._read = {}
        return self._digest

    def names(self) -> list[str]:
        """All files, as paths below the folder."""
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self._folder).as_posix() for path in files)

    def get(self, name: str) -> PageFile:
        """One file.

        Raises:
            NotFoundError: the page has no such file.
        """
        if name not in self._read:
            if name not in self.names():
                raise NotFoundError(f"the page has no file '{name[:100]}'; reload the page")
            media_type = _TYPES.get(Path(name).suffix, "application/octet-stream")
            self._read[name] = PageFile((self._folder / name).read_bytes(), media_type)
        return self._read[name]
