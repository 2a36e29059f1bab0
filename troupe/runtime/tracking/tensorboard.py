"""Tracker ``tensorboard``: event files in ``<run folder>/tensorboard`` or option ``logdir``.

``logdir`` is a folder inside the run folder. Needs the package tensorboard (extra
``troupe[trackers]``), not torch and not TensorFlow.
"""

import importlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.runtime.tracking.tracker import TrackedRun
from troupe.spec import params


class TensorBoardTracker:
    """Writes scalars, and the spec as text at step 0."""

    class Params(params.Params):
        """Options: a folder of the run folder."""

        logdir: str = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        options = self.Params.model_validate(run.options)
        logdir = _inside(run.run_dir, options.logdir or "tensorboard")
        self._writer: Any = EventFileWriter(str(logdir))
        if not run.resumes:
            self._text("spec", json.dumps(dict(run.config), indent=2))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A scalar for each value."""
        summary: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        points = [summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary(value=points))
        self._writer.flush()

    def close(self, state: str) -> None:
        """Close the event file."""
        _ = state
        self._writer.close()

    def _text(self, name: str, text: str) -> None:
        plugin: Any = importlib.import_module("tensorboard.plugins.text.summary_v2")
        self._add(0, plugin.text_pb(name, f"```json\n{text}\n```"))

    def _add(self, step: int, summary: Any) -> None:
        event: Any = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._writer.add_event(event(wall_time=time.time(), step=step, summary=summary))


def _inside(run_dir: Path, logdir: str) -> Path:
    """``logdir`` of a spec as a path; a job writes only into its run folder."""
    folder = (run_dir / logdir).resolve()
    if not folder.is_relative_to(run_dir.resolve()):
        raise InvalidArgumentError(
            f"tracker 'tensorboard' writes inside the run folder only, not to '{logdir}'; give "
            "logdir as a relative path such as 'tensorboard/a'"
        )
    return folder
