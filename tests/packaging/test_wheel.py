"""The built wheel: what names it claims, and that it runs where a user's folders bear old names."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


def _run(argv: list[str], folder: Path, *, limit_s: float) -> str:
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert done.returncode == 0, (argv, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def _files() -> list[str]:
    """Paths of all files but ignored ones."""
    git = ["git", "-C", str(ROOT)]
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("git's list of files is needed; this is no clone, or git is not installed")
    asked = subprocess.run(
        [*git, "rev-parse"], capture_output=True, text=True, timeout=60, check=False
    )
    if asked.returncode:  # as "dubious ownership"
        pytest.skip(f"git does not read this checkout: {asked.stderr.strip()[:300]}")
    argv = [*git, "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = _run(argv, ROOT, limit_s=60).splitlines()
    return [path for path in listed if (ROOT / path).is_file()]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout's files; built from a copy, as a build leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for path in _files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    done = subprocess.run(
        [*pip, "--no-deps", "--wheel-dir", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("pip cannot fetch setuptools here, so no wheel is built")
    assert done.returncode == 0, done.stderr[-3000:]
    [path] = folder.glob("*.whl")
    return path


@pytest.mark.timeout(400)
def test_wheel_then_claims_only_names_that_begin_with_troupe(wheel: Path) -> None:
    names = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    packages = {name for name in names if not name.endswith(".dist-info")}
    assert packages == {
        "troupe",
        "troupe_env",
        "troupe_rollout",
        "troupe_router",
        "troupe_tasks",
        "troupe_trainer",
    }


@pytest.mark.timeout(400)
def test_wheel_then_holds_the_files_that_the_packages_read(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    for path in (
        "troupe/py.typed",
        "troupe/cli/demo.yaml",
        "troupe_tasks/code/builtin.jsonl",
        "troupe_router/web/page/index.html",
        "troupe_rollout/engines/sglang/server/launch.py",
    ):
        assert path in names
    modules = {
        path.partition("services/")[2].partition("/")[2] if path.startswith("services/") else path
        for path in _files()
        if path.startswith(("troupe", "services/")) and path.endswith(".py")
    }
    assert modules - names == set()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_wheel_when_installed_where_folders_are_called_services_and_tasks_then_trains(
    wheel: Path, tmp_path: Path
) -> None:
    for name in ("services", "tasks", "benchmarks", "tools"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('raise RuntimeError("a user\'s own folder")')
    environment = tmp_path / "environment"
    _run([sys.executable, "-m", "venv", str(environment)], tmp_path, limit_s=120)
    python = environment / "bin" / "python"
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    _run([*install, *constraints, f"troupe[local] @ {wheel.as_uri()}"], tmp_path, limit_s=900)
    troupe = str(environment / "bin" / "troupe")
    demo = [troupe, "demo", "--steps", "2", "--ablation", "4", "--json"]
    said = _run(demo, tmp_path, limit_s=600)
    assert '"succeeded"' in said
    assert '"its scout, partners random"' in said
    [summary] = (tmp_path / "runs").glob("*/summary.json")
    assert '"steps": 2' in summary.read_text("utf-8")
    assert list((tmp_path / "runs").glob("*/policies/shared/merged/model.safetensors"))
