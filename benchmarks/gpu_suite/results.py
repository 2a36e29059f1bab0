"""The file of lines: one for each part that ended, with what it was asked and on which card."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import commit


class Results:
    """Lines of one file; only those of ``device`` are looked at."""

    def __init__(self, path: Path, device: str) -> None:
        self._path, self._device = path, device

    def done(self, part: str, key: str) -> dict[str, Any] | None:
        """The newest line of a part that was done as ``key`` says."""
        return next((x for x in self._newest(part, key) if x["status"] == "done"), None)

    def rows(self, part: str, key: str) -> list[dict[str, Any]]:
        """What the newest unfinished line of a part has measured at this commit."""
        here = commit()
        for line in self._newest(part, key):
            if line["status"] == "unfinished" and line["commit"] == here:
                return line["result"].get("rows", [])
        return []

    def _newest(self, part: str, key: str) -> Iterator[dict[str, Any]]:
        wanted = (part, key, self._device)
        lines = reversed(self._lines())
        return (x for x in lines if (x["part"], x["key"], x["device"]) == wanted)

    def add(self, line: dict[str, Any], key: str) -> dict[str, Any]:
        """Append the line, and where and when it was measured; the whole line."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
        facts = {"device": self._device, "commit": commit(), "date": date, "key": key}
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line | facts) + "\n")
        return line | facts

    def _lines(self) -> list[dict[str, Any]]:
        if not self._path.is_file():
            return []
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]
