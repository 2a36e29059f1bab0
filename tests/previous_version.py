"""The version before this one, taken from the checkout's own history."""

import subprocess
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PREVIOUS = "ac82597c4d4680a4bfa51462124278a8f2245d77"
"""A commit of the version that systems are upgraded from, as long as no release is tagged."""


def extract_previous(folder: Path, *paths: str) -> Path:
    """``paths`` of the previous version, below ``folder``; skips where git does not have it."""
    revision = _newest_release() or PREVIOUS
    argv = ["git", "-C", str(ROOT), "archive", revision, *paths]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    except OSError as error:
        pytest.skip(f"no git here, so no previous version ({error})")
    if done.returncode != 0:
        pytest.skip(
            f"the previous version, {revision[:12]}, is not in this checkout (a shallow clone?): "
            f"`git fetch --unshallow` gets it. git says: {done.stderr.decode()[-200:].strip()}"
        )
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def write_entry_points(folder: Path) -> None:
    """Metadata of the code in ``folder``, so that its names load its own modules, not this one's.

    ``folder`` must hold its pyproject.toml and come first on the import path.
    """
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines: list[str] = []
    for group, names in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in names.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def _newest_release() -> str:
    """The newest tag before this commit, or nothing."""
    argv = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
