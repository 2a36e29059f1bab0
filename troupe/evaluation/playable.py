"""Whether every seat of an evaluation can play, found out before the first sample is played.

Looks at the family's methods and at the files of model folders. Never loads weights and never
opens a connection.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from troupe.episodes.local import ScriptedRollout
from troupe.errors import InvalidArgumentError
from troupe.evaluation.refs import ScriptedRef, WeightsRef
from troupe.evaluation.teams import Team
from troupe.tasks.family import TaskFamily

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def check_playable(teams: Sequence[Team], family: TaskFamily) -> None:
    """Raise InvalidArgumentError for the first seat that can't play, and for two teams of one name,
    by which results are kept.
    """
    labels = [team.label for team in teams]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InvalidArgumentError(
            f"two teams are called {twice}; remove one, or name its weights by their path, such as "
            "RUN/policies/NAME/merged"
        )
    for ref in dict.fromkeys(ref for team in teams for ref in team.seats.values()):
        if isinstance(ref, ScriptedRef):
            ScriptedRollout(family, ref.kind)
        elif isinstance(ref, WeightsRef) and Path(ref.model).is_dir():
            _check_model(Path(ref.model))


def _check_model(folder: Path) -> None:
    try:
        json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"the model in {folder} can't be loaded: its config.json can't be read ({error})"
        ) from error
    if not any(path.suffix in _WEIGHTS for path in folder.iterdir()):
        raise InvalidArgumentError(
            f"the model in {folder} can't be loaded: it has no weights (model*.safetensors); "
            "bring them back, or give another folder"
        )
