#!/usr/bin/env python3
"""Makes .venv-importers/<name> for the libraries whose environments Troupe imports.

    python scripts/importer_venvs.py [--repo URL] [NAME ...]

verifiers' environments are packages in its repository, at the commits named here; --repo names a
clone to take them from. An environment of Python that cannot be made is reported, and what needs
it is skipped.
"""

import argparse
import hashlib
import io
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venv-importers"
REPO = "https://github.com/PrimeIntellect-ai/verifiers"
COMMITS = {
    "verifiers_v0": "9daf5a9337e1d3516b0f7086909db2cbf24a42b6",
    "verifiers_v1": "a60a606ecc4d309247edf9ff92c3eabca362781f",
}
PACKAGES = {
    "reasoning_gym": ["reasoning-gym==0.1.25"],
    "verifiers_v0": [
        "verifiers==0.2.1", "textarena==0.7.4", "nltk>=3.9", "reasoning-gym==0.1.25",
    ],
    "verifiers_v1": [
        "verifiers==0.4.0", "textarena==0.7.4", "nltk>=3.9", "datasets>=4", "math-verify>=0.8",
        "pillow>=11",
    ],
}  # fmt: skip


def make(name: str, repo: str) -> bool:
    """Whether .venv-importers/<name> holds its packages and environments."""
    folder = VENVS / name
    stamp = folder / ".installed"
    wanted = hashlib.sha256(f"{PACKAGES[name]} {COMMITS.get(name)}".encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    print(f"{name}: installing {', '.join(PACKAGES[name])}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    try:
        subprocess.run([*pip, "--quiet", *PACKAGES[name]], check=True)
        if name in COMMITS:
            source = environments(repo, COMMITS[name])
            found = sorted(path.parent for path in source.glob("environments/*/pyproject.toml"))
            for path in found:
                # What an environment needs besides (a database, a service) is its own affair.
                subprocess.run([*pip, "--quiet", "--no-deps", str(path)], check=False)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"{name}: {error}; what needs it is skipped", file=sys.stderr)
        return False
    stamp.write_text(wanted)
    return True


def environments(repo: str, commit: str) -> Path:
    """The folder with the repository's ``environments`` at ``commit``."""
    clone, folder = VENVS / "repository", VENVS / "source" / commit
    if folder.is_dir():
        return folder
    if not clone.is_dir():
        clone.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--bare", repo, str(clone)], check=True)
    git = ["git", "--git-dir", str(clone), "archive", commit, "environments"]
    archive = subprocess.run(git, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def main() -> int:
    """1 if one could not be made."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--repo", default=REPO)
    options = parser.parse_args()
    made = [make(name, options.repo) for name in options.names or PACKAGES]
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main())
