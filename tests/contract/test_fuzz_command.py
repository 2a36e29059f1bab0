"""`make fuzz` refuses numbers that mean nothing, and names only logs that it keeps."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz.py"


@pytest.fixture
def fuzz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/fuzz.py, whose logs lie in a folder of their own."""
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


@pytest.mark.parametrize(
    ("option", "value", "least"),
    [
        ("minutes", "-0.5", 0),
        ("minutes", "nan", 0),
        ("messages", "-5", 0),
        ("examples", "0", 1),
        ("examples", "-1", 1),
    ],
)
def test_fuzz_when_a_number_is_too_small_then_says_which(
    option: str, value: str, least: int
) -> None:
    argv = [sys.executable, str(SCRIPT), f"--{option}", value]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"error: --{option} must be at least {least}, not {value}" in done.stderr


@pytest.mark.parametrize(("argument", "passes"), [("--version", True), ("--no-such", False)])
def test_log_when_pytest_ends_then_is_named_only_if_it_is_kept(
    argument: str,
    passes: bool,
    fuzz: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fuzz.passes("round", [argument], {}) == passes
    log = tmp_path / "round.log"
    assert log.exists() != passes
    assert (str(log) in capsys.readouterr().out) != passes
