"""Serves teachers: models as they are, whose only version, 0, no trainer sends.

Owns what stands for that version in an engine. Never decides which teachers are served here.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from troupe.evaluation.bare import stage_bare
from troupe.runtime.engines.engine import Engine
from troupe.spec.policy import PolicySpec


async def hold_teachers(engine: Engine, teachers: Mapping[str, PolicySpec]) -> None:
    """Have ``engine``, which has loaded the models of ``teachers``, serve each as version 0.

    Raises WeightsRejectedError when the engine takes no adapter that changes nothing.
    """
    with tempfile.TemporaryDirectory(prefix="troupe-teachers-") as files:
        for name, spec in teachers.items():
            await stage_bare(engine, name, spec.model, Path(files))
            await engine.activate(name, 0)
