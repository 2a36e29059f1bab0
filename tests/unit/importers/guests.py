"""The guest's modules, which stand alone in a process of another interpreter, imported here."""

import sys
from pathlib import Path

import troupe_tasks.importers.process as process

sys.path.append(str(Path(process.__file__).parent / "guest"))

import packaged
import procedural
import rollouts
import serve

__all__ = ["packaged", "procedural", "rollouts", "serve"]
