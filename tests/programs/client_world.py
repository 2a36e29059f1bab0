"""A program of a test, run by the Python of an example that has the client which it needs."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.program_examples import EXAMPLES, python_of
from troupe.spec import load_spec
from troupe.tasks.registry import load_family
from troupe_tasks.programs.family import Program


def program_of(
    example: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **params: Any
) -> Program:
    """``run`` of ``code``, written to ``folder``, with one seat; skips where the Python is not."""
    if not python_of(example).exists():
        pytest.skip(f"no .venv-programs/{example}: make program-venv NAME={example}")
    (folder / "asks.py").write_text(code)
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    own = {
        "program": "asks:run",
        "folder": str(folder),
        "seats": {"solver": {"rest": True}},
        "score": None,
    }
    given = load_spec(EXAMPLES / f"{example}.yaml").task.params
    family = load_family("program", {**given, **own, **params})
    assert isinstance(family, Program)
    return family
