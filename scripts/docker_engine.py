#!/usr/bin/env python3
"""A Docker Engine with compose for `make test-compose`, beside whatever the machine has.

    python3.11 scripts/docker_engine.py start     # prints DOCKER_HOST and DOCKER_CONFIG to use
    python3.11 scripts/docker_engine.py stop      # ends it and deletes its images and volumes

Uses the machine's engine where `docker info` answers. Otherwise, on Debian 12 as root, installs
docker.io, takes compose and buildx from the next Debian, and starts a dockerd of its own below
`.tools/docker`. Prints one line that says why, and exits 1, where no engine can be had.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import get_kubernetes as apt

REPO = Path(__file__).resolve().parent.parent
HOME = REPO / ".tools" / "docker"
PLUGINS = ("docker-compose", "docker-buildx")
PLUGINS_SUITE = "trixie"
CAP_SYS_RESOURCE = 24
WITHOUT_OOM = """#!/bin/sh
# Pods ask for a negative oom_score_adj, which a root without CAP_SYS_RESOURCE cannot give.
bundle=. before=
for word in "$@"; do
  case "$before" in --bundle | -b) bundle=$word ;; esac
  case "$word" in --bundle=*) bundle=${word#*=} ;; esac
  before=$word
done
test ! -f "$bundle/config.json" ||
  sed -E -i 's/"oomScoreAdj":-[0-9]+/"oomScoreAdj":0/' "$bundle/config.json"
exec runc "$@"
"""


def main() -> int:
    """Start or stop; 0 when that went well."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["start", "stop"])
    options = parser.parse_args()
    try:
        if options.what == "stop":
            stop()
            return 0
        print(json.dumps(start()))
    except apt.FetchError as error:
        print(f"docker: {error}", file=sys.stderr)
        return 1
    return 0


def start() -> dict[str, str]:
    """The variables under which `docker compose` works; {} when it does without any."""
    if answers({}):
        return {}
    variables = {
        "DOCKER_HOST": f"unix://{HOME / 'docker.sock'}",
        "DOCKER_CONFIG": str(HOME / "config"),
    }
    if answers(variables):
        return variables
    apt.check_machine()
    if shutil.which("dockerd") is None:
        apt.run(["apt-get", "update"], 300)
        apt.run(["apt-get", "install", "-y", "--no-install-recommends", "docker.io"], 900)
    if not all((HOME / "config" / "cli-plugins" / name).is_file() for name in PLUGINS):
        fetch_plugins()
    launch()
    for _ in range(300):
        if answers(variables):
            return variables
        time.sleep(0.1)
    log = (HOME / "dockerd.log").read_text("utf-8", errors="replace")
    raise apt.FetchError(f"dockerd does not answer: {' '.join(log.split())[-300:]}")


def answers(variables: dict[str, str]) -> bool:
    """Whether an engine and compose answer under these variables."""
    if shutil.which("docker") is None:
        return False
    environment = {**os.environ, **variables}
    for argv in (["docker", "info"], ["docker", "compose", "version"]):
        done = subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)
        # `docker info` ends with 0 without a server, and says so.
        if done.returncode != 0 or b"Cannot connect" in done.stdout + done.stderr:
            return False
    return True


def fetch_plugins() -> None:
    """Compose and buildx; Debian 12's own compose is the old one."""
    folder = HOME / "apt"
    shutil.rmtree(folder, ignore_errors=True)
    config = apt.own_apt(folder)
    source = (folder / "sources.list").read_text("utf-8")
    source = source.replace("deb-src", "deb").replace(apt.SUITE, PLUGINS_SUITE)
    (folder / "sources.list").write_text(source, encoding="utf-8")
    variables = {"APT_CONFIG": str(config)}
    apt.run(["apt-get", "update"], 300, variables)
    apt.run(["apt-get", "download", *PLUGINS], 600, variables, folder)
    plugins = HOME / "config" / "cli-plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    for package in folder.glob("*.deb"):
        apt.run(["dpkg-deb", "-x", str(package), str(folder / "x")], 120)
    for name in PLUGINS:
        shutil.copy2(folder / "x/usr/libexec/docker/cli-plugins" / name, plugins / name)
    shutil.rmtree(folder)


def launch() -> None:
    """A dockerd of our own; its pid is in its pidfile."""
    HOME.mkdir(parents=True, exist_ok=True)
    runtime: list[str] = []
    if not has_capability(CAP_SYS_RESOURCE):
        wrapper = HOME / "runc-without-oom"
        wrapper.write_text(WITHOUT_OOM, encoding="utf-8")
        wrapper.chmod(0o755)
        runtime = [f"--add-runtime=without-oom={wrapper}", "--default-runtime=without-oom"]
    with (HOME / "dockerd.log").open("wb") as log:
        subprocess.Popen(
            [
                "dockerd",
                f"--data-root={HOME / 'data'}",
                f"--exec-root={HOME / 'exec'}",
                f"--pidfile={HOME / 'dockerd.pid'}",
                f"--host=unix://{HOME / 'docker.sock'}",
                *runtime,
            ],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def has_capability(bit: int) -> bool:
    """Whether this process has the capability of this number."""
    status = Path("/proc/self/status").read_text("ascii")
    [effective] = [line for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(int(effective.split()[1], 16) >> bit & 1)


def stop() -> None:
    """End our dockerd, if it runs, and delete what it kept."""
    pidfile = HOME / "dockerd.pid"
    if pidfile.is_file():
        pid = int(pidfile.read_text("utf-8"))
        os.kill(pid, signal.SIGTERM)
        for _ in range(300):
            if not pidfile.is_file():
                break
            time.sleep(0.1)
        else:
            raise apt.FetchError(f"dockerd (pid {pid}) did not end within 30 s")
    shutil.rmtree(HOME / "data", ignore_errors=True)
    shutil.rmtree(HOME / "exec", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
