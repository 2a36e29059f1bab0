"""The package that `troupe new` makes: its types are strict and its own tests pass, tools and all.

Slow, since whole tools run on it; what they share is made once. The rest of the scaffold's tests
are in tests/unit/conformance.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from troupe.conformance.scaffold import write_task_package

ROOT = Path(__file__).parents[2]
TOOL_S = 240


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task_package("word_chain", tmp_path_factory.mktemp("package") / "made")


def ran(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_S, check=False, cwd=cwd
    )


@pytest.mark.timeout(TOOL_S + 60)
def test_new_task_when_made_then_passes_strict_types(package: Path) -> None:
    env_command = shutil.which("env")
    assert env_command is not None
    where = ("--pythonpath", sys.executable, "--project", str(package))
    # The path helps the type checker find an editable install; it does not follow import hooks.
    python = (env_command, f"PYTHONPATH={ROOT}", sys.executable)
    done = ran(*python, "-m", "basedpyright", *where, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout


@pytest.mark.timeout(TOOL_S + 60)
def test_new_task_when_made_then_its_own_tests_pass(package: Path) -> None:
    done = ran(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", cwd=package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
