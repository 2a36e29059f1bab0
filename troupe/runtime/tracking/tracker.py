"""The Tracker interface. Extension point ``troupe.trackers``: classes that take a TrackedRun.

A tracker with options declares them as a model ``Params``; one without it has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that a tracker records.

    ``config`` is the job's spec; ``options`` are the tracker's settings from the spec;
    ``resumes`` means that the first steps were recorded before the job was resumed.
    ``unique_id``: the job's on a server that several platforms share, where each has a "demo-1".
    """

    job_id: str
    project: str
    run_dir: Path
    config: Mapping[str, Any]
    options: Mapping[str, Any]
    resumes: bool = False
    unique_id: str = ""


class Tracker(Protocol):
    """One open run. Every method may block and may raise; neither reaches the job."""

    def __init__(self, run: TrackedRun) -> None:
        """Open or reopen the run; ``Params.model_validate(run.options)`` reads its options."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record ``values`` at ``step``. Called once for each line, in order."""
        ...

    def close(self, state: str) -> None:
        """End the run; ``state`` is succeeded, failed, cancelled, or "" when it continues later."""
        ...
