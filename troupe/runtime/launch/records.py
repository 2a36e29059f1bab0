"""The local launcher's records: one JSON file for each component, so that any caller can adopt it.

Owns the record's format and its atomic write. Never looks at processes.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from troupe.runtime.disk_space import is_full

_TOLD = re.compile(r"troupe [a-z-]+: ")
"""How a service begins to say why it ends."""
_BLOCK = 4096
"""Bytes that file systems give to a file at once, at least."""


@dataclass(slots=True)
class ProcRecord:
    """The record of one component.

    ``launch_id`` is in the environment of the process ``pid`` (started at ``ticks``), and is
    written before the process starts; ``digest`` covers argv and environment; ``log_start`` is
    where this process begins in the log, bytes; ``num_quick`` counts the latest deaths in a row
    that came soon after a start; instants are Unix seconds.
    """

    name: str
    digest: str
    log: str
    launch_id: str = ""
    pid: int | None = None
    ticks: int = 0
    state: str = "absent"
    restarts: int = 0
    exit_code: int | None = None
    detail: str = ""
    log_start: int = 0
    started_at: float = 0.0
    restart_at: float = 0.0
    failures: list[float] = field(default_factory=list[float])
    num_quick: int = 0

    def save(self, folder: Path) -> None:
        """Write the record to ``<folder>/<name>.json``, also where the disk is full.

        Raises:
            OSError: the disk is full and has no earlier record that could be overwritten.
        """
        folder.mkdir(parents=True, exist_ok=True)
        document = asdict(self)
        short = json.dumps(document | {"detail": ""})
        write_record(folder / f"{self.name}.json", json.dumps(document, indent=1), short=short)


def write_record(path: Path, text: str, *, short: str, mode: int = 0o666) -> None:
    """Replace a small file atomically; on a full disk, overwrite it in the blocks that it has.

    ``mode`` is the new file's, less the umask.

    ``short`` takes the place of a ``text`` that is longer than these blocks; JSON, since both are
    filled up with spaces. Only the power cut that hits an overwriting can tear it.

    Raises:
        OSError: the disk is full and there is no file yet, or none of this length.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(text.encode())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not is_full(error) or not path.is_file():
            raise
        size = path.stat().st_size
        room = -(-size // _BLOCK) * _BLOCK
        data = next((d for d in (text.encode(), short.encode()) if len(d) <= room), None)
        if data is None:
            raise
        with path.open("r+b", buffering=0) as file:
            file.write(data.ljust(size))


def load_record(folder: Path, name: str) -> ProcRecord | None:
    """The record of ``name``, or None when there is no readable one."""
    try:
        document: Mapping[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
        return ProcRecord(**document)
    except (OSError, ValueError, TypeError):
        return None


def load_records(folder: Path) -> list[ProcRecord]:
    """Every readable record of the folder, by name."""
    names = sorted(path.stem for path in folder.glob("*.json"))
    return [record for name in names if (record := load_record(folder, name))]


def plain_lines(log: str) -> str:
    """The lines meant for people: those that are not JSON, or all of them when every one is."""
    plain = [line for line in log.splitlines() if line.strip() and not line.startswith("{")]
    return "\n".join(plain) or log


def last_words(log: str) -> str:
    """Why a process ended, as far as its ``log`` says: the service's own sentence, the last one;
    else what is not JSON, and the exception that ended it without its traceback; else all of it."""
    lines = log.splitlines()
    told = [number for number, line in enumerate(lines) if _TOLD.match(line)]
    if told:
        return plain_lines("\n".join(lines[told[-1] :]))
    raised = [words for line in lines if line.startswith("{") and (words := _fatal(line))]
    if not raised:
        return plain_lines(log)
    plain = [line for line in lines if line.strip() and not line.startswith("{")]
    return "\n".join([*plain, raised[-1]])


def _fatal(line: str) -> str:
    """The last line of the traceback in a log line of a service's death; empty for another line."""
    try:
        fields = json.loads(line)
    except ValueError:
        return ""
    # Other exceptions are logged by a process that goes on.
    fatal = fields.get("exception") if fields.get("event") == "service.died" else None
    return str(fatal or "").strip().rpartition("\n")[2]


def forget_record(folder: Path, name: str) -> None:
    """Delete the record of ``name``."""
    (folder / f"{name}.json").unlink(missing_ok=True)
