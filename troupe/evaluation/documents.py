"""Small JSON files of run and model folders, which a full disk may have cut."""

import json
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; raises InvalidArgumentError, which names it, for anything else.

    Example: ``read_object(adapter / "adapter_config.json")["r"]``.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{path} is not a JSON object")
    return document


def summary_of(run_dir: Path) -> dict[str, Any]:
    """``summary.json`` of a run folder; empty while its job runs."""
    path = run_dir / "summary.json"
    return read_object(path) if path.is_file() else {}
