"""The local launcher's records: one JSON file for each component, so that any caller can adopt it.

Owns the record's format and its atomic write. Never looks at processes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


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
        """Write the record atomically to ``<folder>/<name>.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{self.name}.json.tmp"
        temporary.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        temporary.replace(folder / f"{self.name}.json")


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


def forget_record(folder: Path, name: str) -> None:
    """Delete the record of ``name``."""
    (folder / f"{name}.json").unlink(missing_ok=True)
