#!/usr/bin/env python3
"""Makes kube-apiserver and kube-controller-manager for `make test-k8s` into `.tools/`.

    python3.11 scripts/get_kubernetes.py          # about 10 minutes of two cores, 2 GB meanwhile
    python3.11 scripts/get_kubernetes.py --node   # also what a node runs, for `make test-cluster`

No package registry has these programs, but Debian has the whole source of one version (1.20). Needs
Debian 12, root and apt; etcd comes from Debian as well. A finished folder is left as it is. Prints
one line that says why, and exits 1, where they cannot be had. Programs of a newer version, put into
`.tools/` by hand, are used instead.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PROGRAMS = ("kube-apiserver", "kube-controller-manager")
NODE_PROGRAMS = ("kube-scheduler", "kubelet", "kube-proxy")
PACKAGES = ("golang-go", "jq", "rsync", "make", "dpkg-dev", "etcd-server", "openssl")
NODE_PACKAGES = ("dnsmasq-base", "iptables", "socat")
"""The cluster's DNS, kube-proxy's rules, and what `kubectl port-forward` goes through."""
VERSION = "v1.20.2"
SUITE = "bookworm"
BUILD = {
    "KUBE_GIT_TREE_STATE": "archive",
    "KUBE_GIT_VERSION": VERSION,
    "KUBE_GIT_MAJOR": "1",
    "KUBE_GIT_MINOR": "20",
    "KUBE_GIT_COMMIT": "debian",
    "KUBE_VERBOSE": "0",
    "GO111MODULE": "off",
    "GOFLAGS": "-mod=vendor",
}


class FetchError(Exception):
    """Why there is no API server, in one line."""


def main() -> int:
    """Make or check the programs; 0 when they are usable."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--into", type=Path, default=REPO / ".tools", help="folder to fill")
    parser.add_argument("--check", action="store_true", help="only say whether they are there")
    parser.add_argument("--node", action="store_true", help="also what a node runs")
    options = parser.parse_args()
    programs = (*PROGRAMS, *NODE_PROGRAMS) if options.node else PROGRAMS
    on_path = ("etcd", "dnsmasq", "iptables", "socat") if options.node else ("etcd",)
    try:
        if not is_complete(options.into, programs, on_path):
            if options.check:
                raise FetchError(f"not in {options.into}; run {Path(__file__).name}")
            check_machine()
            packages = (*PACKAGES, *NODE_PACKAGES) if options.node else PACKAGES
            run(["apt-get", "update"], 300)
            run(["apt-get", "install", "-y", "--no-install-recommends", *packages], 900)
            missing = [name for name in programs if not (options.into / name).is_file()]
            with tempfile.TemporaryDirectory(prefix="troupe-kubernetes-") as folder:
                build(Path(folder), options.into, missing)
    except FetchError as error:
        print(f"kubernetes: {error}", file=sys.stderr)
        return 1
    print(f"kubernetes: {', '.join(programs)} in {options.into}, {', '.join(on_path)} on PATH")
    return 0


def is_complete(into: Path, programs: Sequence[str], on_path: Sequence[str]) -> bool:
    """Whether every program is there."""
    has_others = all((into / name).is_file() or shutil.which(name) for name in on_path)
    return has_others and all((into / program).is_file() for program in programs)


def check_machine() -> None:
    """Raise FetchError unless this is a Debian whose packages may be installed."""
    release = Path("/etc/os-release")
    if not release.is_file() or SUITE not in release.read_text("utf-8"):
        raise FetchError(f"the sources are those of Debian {SUITE}; put the programs into .tools/")
    if os.geteuid() != 0:
        raise FetchError("apt-get needs root")
    if shutil.disk_usage(REPO).free < 6 * 2**30:
        raise FetchError("the build needs 6 GB of free disk")


def build(folder: Path, into: Path, programs: Sequence[str]) -> None:
    """Debian's source package > go build > ``into``."""
    if not programs:
        return
    config = own_apt(folder / "apt")
    run(["apt-get", "update"], 300, {"APT_CONFIG": str(config)})
    fetched = ["apt-get", "source", "--only-source", "kubernetes"]
    run(fetched, 600, {"APT_CONFIG": str(config)}, folder)
    trees = [path for path in folder.glob("kubernetes-*") if path.is_dir()]
    if len(trees) != 1:
        raise FetchError(f"apt-get source left {len(trees)} trees")
    what = " ".join(f"cmd/{program}" for program in programs)
    variables = {**BUILD, "GOCACHE": str(folder / "cache")}
    run(
        ["nice", "make", f"WHAT={what}", *(f"{k}={v}" for k, v in variables.items())],
        5400,
        {},
        trees[0],
    )
    into.mkdir(parents=True, exist_ok=True)
    (into / ".gitignore").write_text("*\n", encoding="utf-8")
    for program in programs:
        built = trees[0] / "_output" / "bin" / program
        part = into / f"{program}.part"
        shutil.copyfile(built, part)
        part.chmod(0o755)
        part.replace(into / program)


def own_apt(folder: Path) -> Path:
    """An apt configuration with the machine's own mirror and its sources, beside the machine's."""
    sites = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout.split("\n")
    mirrors = [line.split()[0] for line in sites if line.endswith(f" {SUITE}")]
    if not mirrors:
        raise FetchError(f"apt knows no mirror of Debian {SUITE}")
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"deb-src [signed-by={keys}] {mirrors[0]} {SUITE} main\n"
    (folder / "sources.list").write_text(source, encoding="utf-8")
    config = folder / "apt.conf"
    config.write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n',
        encoding="utf-8",
    )
    return config


def run(
    argv: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a command; raises FetchError with its last words."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", **(env or {})}
    try:
        done = subprocess.run(
            argv,
            env=environment,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        words = " ".join(done.stdout.split())[-300:]
        raise FetchError(f"`{' '.join(argv[:3])}` failed: {words}")


if __name__ == "__main__":
    sys.exit(main())
