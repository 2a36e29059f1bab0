"""Logs of a job's processes, by line and byte offset.

Reads ``logs/<component>.log`` of a run folder and nothing else. Never writes.
"""

import re
from pathlib import Path

from troupe.clients.rest.models.logs import LogFileDocument, LogList, LogPage
from troupe.errors import NotFoundError
from troupe_router.run.paths import is_within

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,120}")
MAX_BYTES = 1 << 20
"""The most bytes of a log in one answer."""


def log_list(run_dir: Path) -> LogList:
    """Every log of the run folder; none where another launcher runs the processes."""
    listed: list[LogFileDocument] = []
    for path in sorted((run_dir / "logs").glob("*.log")):
        if _NAME.fullmatch(path.stem) and path.is_file() and is_within(run_dir, path):
            status = path.stat()
            listed.append(
                LogFileDocument(
                    component=path.stem,
                    size_bytes=status.st_size,
                    modified_at=status.st_mtime,
                )
            )
    return LogList(components=listed)


def log_tail(run_dir: Path, component: str, lines: int) -> LogPage:
    """The last whole ``lines`` lines, or fewer where they are longer than ``MAX_BYTES``."""
    path = _path(run_dir, component)
    size = path.stat().st_size
    start = max(0, size - MAX_BYTES)
    text = _read(path, start, size - start)
    if start > 0:
        cut = text.find(b"\n") + 1
        start, text = start + cut, text[cut:]
    text = text[: text.rfind(b"\n") + 1]
    pieces = text.splitlines(keepends=True)
    shown = pieces[-lines:] if lines else []
    start += sum(len(piece) for piece in pieces[: len(pieces) - len(shown)])
    return _page(component, shown, start, size)


def log_after(run_dir: Path, component: str, place: int, lines: int) -> LogPage:
    """Up to ``lines`` whole lines after the byte ``place``; a log that shrank begins anew."""
    path = _path(run_dir, component)
    size = path.stat().st_size
    start = place if place <= size else 0
    text = _read(path, start, min(MAX_BYTES, size - start))
    end = text.rfind(b"\n") + 1
    if not end and len(text) == MAX_BYTES:
        end = MAX_BYTES
    return _page(component, text[:end].splitlines(keepends=True)[:lines], start, size)


def _page(component: str, pieces: list[bytes], start: int, size: int) -> LogPage:
    return LogPage(
        component=component,
        lines=[piece.decode("utf-8", "replace").rstrip("\r\n") for piece in pieces],
        start=start,
        next=start + sum(len(piece) for piece in pieces),
        size_bytes=size,
    )


def _path(run_dir: Path, component: str) -> Path:
    path = run_dir / "logs" / f"{component}.log"
    if not (_NAME.fullmatch(component) and path.is_file() and is_within(run_dir, path)):
        known = [log.component for log in log_list(run_dir).components]
        raise NotFoundError(
            f"no log of a component '{component[:120]}'; there "
            + (
                f"are: {', '.join(known)}"
                if known
                else "are none in the run folder: processes "
                "that the router did not launch log to their container"
            )
        )
    return path


def _read(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(max(0, size))
