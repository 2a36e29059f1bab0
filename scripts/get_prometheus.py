#!/usr/bin/env python3
"""Fetches Prometheus and promtool for Linux into `.tools/`, without root.

    python3.11 scripts/get_prometheus.py      # .tools/prometheus and .tools/promtool

Takes them from the machine's own Debian or Ubuntu archive when `apt-get download` works, else the
pinned release of the project, checked against its list of digests. A finished folder is left as
it is. Prints one line that says why, and exits 1, where they cannot be had.
"""

import argparse
import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
VERSION = "2.53.5"
URL = (
    "https://github.com/prometheus/prometheus/releases/download/"
    f"v{VERSION}/prometheus-{VERSION}.linux-amd64.tar.gz"
)
URL_SUMS = f"https://github.com/prometheus/prometheus/releases/download/v{VERSION}/sha256sums.txt"
PROGRAMS = ("prometheus", "promtool")
TIMEOUT_S = 300


class FetchError(Exception):
    """Why there is no Prometheus, in one line."""


def main() -> int:
    """Fetch or check the programs; 0 when they are usable."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=REPO / ".tools", help="folder to fill")
    parser.add_argument("--check", action="store_true", help="only say whether they are there")
    options = parser.parse_args()
    try:
        if not all(works(options.into / name) for name in PROGRAMS):
            if options.check:
                raise FetchError(f"{options.into / 'promtool'} is not there; run {__file__}")
            fetch(options.into)
    except FetchError as error:
        print(f"prometheus: {error}", file=sys.stderr)
        return 1
    print(f"prometheus: {options.into / 'prometheus'}")
    return 0


def fetch(into: Path) -> None:
    """Fill ``into`` from the first source that works; raises FetchError with every reason."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise FetchError("install Prometheus 2.42 or newer yourself and put it on PATH")
    into.mkdir(parents=True, exist_ok=True)
    reasons: list[str] = []
    for source in (from_path, from_debian, from_release):
        try:
            source(into)
        except FetchError as error:
            reasons.append(str(error))
            continue
        if all(works(into / name) for name in PROGRAMS):
            return
        reasons.append(f"{source.__name__}: the programs do not run here")
    raise FetchError("; ".join(reasons))


def from_path(into: Path) -> None:
    """Programs that the machine has already."""
    for name in PROGRAMS:
        program = shutil.which(name)
        if program is None:
            raise FetchError(f"{name} is not on PATH")
        (into / name).unlink(missing_ok=True)
        (into / name).symlink_to(program)


def from_debian(into: Path) -> None:
    """The package of the machine's own archive, unpacked and not installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise FetchError("there is no apt-get")
    with tempfile.TemporaryDirectory() as folder:
        run(["apt-get", "download", "prometheus"], folder)
        for package in Path(folder).glob("*.deb"):
            run(["dpkg-deb", "-x", str(package), "x"], folder)
        for name in PROGRAMS:
            place(into, name, (Path(folder) / "x/usr/bin" / name).read_bytes())


def from_release(into: Path) -> None:
    """The project's release, checked against its list of digests."""
    payload, name = load(URL), URL.rpartition("/")[2]
    sums = load(URL_SUMS).decode().splitlines()
    if f"{hashlib.sha256(payload).hexdigest()}  {name}" not in sums:
        raise FetchError(f"{URL} does not have the digest that the release lists")
    with tarfile.open(fileobj=io.BytesIO(payload), mode="r:gz") as archive:
        for program in PROGRAMS:
            member = archive.extractfile(f"{name.removesuffix('.tar.gz')}/{program}")
            if member is None:
                raise FetchError(f"{name} has no {program}")
            place(into, program, member.read())


def load(url: str) -> bytes:
    """What is at ``url``."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.read()
    except OSError as error:
        raise FetchError(f"{url} cannot be loaded ({error})") from error


def place(into: Path, name: str, program: bytes) -> None:
    """Write a program so that it is whole or absent."""
    part = into / f"{name}.part"
    part.write_bytes(program)
    part.chmod(0o755)
    part.replace(into / name)


def run(argv: list[str], folder: str) -> None:
    """Run a command in ``folder``; raises FetchError."""
    try:
        done = subprocess.run(
            argv, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise FetchError(f"{' '.join(argv[:2])}: {last}")


def works(program: Path) -> bool:
    """Whether the program starts."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
