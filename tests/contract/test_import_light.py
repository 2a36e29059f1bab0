"""The SDK and the command start without torch, web frameworks or services."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "peft", "fastapi", "uvicorn", "matplotlib", "services")


@pytest.mark.parametrize(
    "module",
    ["troupe", "troupe.spec", "troupe.clients.rest", "troupe.clients", "troupe.cli.main"],
)
def test_import_when_only_the_sdk_is_used_then_nothing_heavy_is_loaded(module: str) -> None:
    code = (
        f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules], end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]"


def test_probe_when_imported_then_needs_the_standard_library_alone() -> None:
    code = "import sys, troupe.cli.probe; print('pydantic' in sys.modules, end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False"
