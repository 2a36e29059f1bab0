"""Tracker ``csv``: one long table ``tracking.csv`` (step, name, value) in the run folder."""

import csv
import os
from collections.abc import Mapping

from troupe.durable import sync
from troupe.runtime.tracking.tracker import TrackedRun
from troupe.spec.params import NoParams


class CsvTracker:
    """Appends rows; a resumed job continues the same file."""

    Params = NoParams

    def __init__(self, run: TrackedRun) -> None:
        self.Params.model_validate(run.options)
        path = run.run_dir / "tracking.csv"
        is_new = not (run.resumes and path.is_file())
        self._file = path.open("w" if is_new else "a", newline="", encoding="utf-8")
        sync(path.parent)
        self._rows = csv.writer(self._file)
        if is_new:
            self._rows.writerow(["step", "name", "value"])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A row for each value."""
        self._rows.writerows((step, name, value) for name, value in values.items())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, state: str) -> None:
        """Close the file."""
        _ = state
        self._file.close()
