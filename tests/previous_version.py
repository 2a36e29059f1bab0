"""The version before this one, taken from the checkout's own history."""

import subprocess
import tarfile
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


def _newest_release() -> str:
    """The newest tag before this commit, or nothing."""
    argv = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
