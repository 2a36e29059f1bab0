"""Which installed packages a program can reach: those of a configured interpreter, no others.

Each test lays packages where some distribution puts them, below a folder that programs see.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_here import skip_or_fail

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.settings import SandboxSettings

IMPORT = """
import sys
sys.path.append({folder!r})
try:
    import {module}
    print("imported", {module}.__name__)
except ImportError:
    print("hidden")
"""


@pytest.fixture(scope="module")
def prefix() -> Iterator[Path]:
    """An interpreter's prefix, outside /tmp: a program's /tmp is its alone."""
    folder = Path(tempfile.mkdtemp(prefix="troupe-prefix-", dir="/var/tmp"))
    folder.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    yield folder
    shutil.rmtree(folder)


def installed(folder: Path, module: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text("")
    return str(folder)


def outcome(folder: str, module: str, **settings: object) -> str:
    try:
        sandbox = open_sandbox(
            SandboxSettings.model_validate({"level": "namespaces", "workers": 1, **settings})
        )
    except InvalidArgumentError as error:
        if "is not possible here" in error.message:
            skip_or_fail(error)
        raise
    try:
        done = sandbox.run(Program(IMPORT.format(folder=folder, module=module)), Limits())
    finally:
        sandbox.close()
    assert done.is_ok, done
    return done.stdout.strip()


@pytest.mark.parametrize(
    "packages",
    ["lib/python3/dist-packages", "lib/python3.9/dist-packages", "lib64/python3.9/site-packages"],
)
def test_packages_when_the_interpreter_does_not_import_them_then_hidden(
    packages: str, prefix: Path
) -> None:
    folder = installed(prefix / packages, "judge_of_old")
    assert outcome(folder, "judge_of_old", python=str(prefix / "bin" / "python")) == "hidden"


def test_packages_when_their_folder_is_a_link_then_hidden(prefix: Path) -> None:
    installed(prefix / "share" / "packages", "judge_by_link")
    link = prefix / "lib" / "python3.8" / "dist-packages"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(prefix / "share" / "packages")
    assert outcome(str(link), "judge_by_link", python=str(prefix / "bin" / "python")) == "hidden"


def test_packages_when_the_configured_interpreter_has_them_then_imported(prefix: Path) -> None:
    (folder,) = (prefix / "lib").glob(f"python3.{sys.version_info.minor}/site-packages")
    installed(folder, "wanted_package")
    python = str(prefix / "bin" / "python")
    assert outcome(str(folder), "wanted_package", python=python) == "imported wanted_package"


@pytest.mark.parametrize("place", ["on_pythonpath", "lib/python3.9/dist-packages"])
def test_packages_when_the_service_imports_them_then_hidden_in_what_is_shown(
    place: str, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of PYTHONPATH or of a .pth file, below one that programs may read."""
    folder = installed(prefix / place, "judge_of_the_service")
    monkeypatch.syspath_prepend(folder)
    shown = [str(prefix)]
    assert outcome(folder, "judge_of_the_service", shown_paths=shown) == "hidden"


def test_folder_when_the_operator_shows_it_then_programs_import_from_it(prefix: Path) -> None:
    folder = installed(prefix / "data", "shown_data")
    assert outcome(folder, "shown_data", shown_paths=[folder]) == "imported shown_data"


def test_interpreter_when_it_does_not_run_then_refused_with_its_setting(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "python"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(InvalidArgumentError, match="TROUPE_ENV_SANDBOX_PYTHON"):
        open_sandbox(SandboxSettings(level="namespaces", workers=1, python=str(broken)))
