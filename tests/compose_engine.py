"""docker compose on a real engine, with what stands in for base images that cannot be pulled."""

import contextlib
import functools
import http.server
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
PROJECT = "troupe-test"
DONE = ("succeeded", "failed", "cancelled")
SERVICES = ("redis", "router", "rollout", "env", "trainer")
BASES = {
    "TROUPE_PYTHON_IMAGE": ("python:3.11.14-slim-bookworm", "python"),
    "TROUPE_REDIS_IMAGE": ("valkey/valkey:8.1.3-alpine", "redis"),
}
"""Variable of docker-compose.yml -> the public image, and the target that stands in for it."""
INDEX_PORT = 48084
"""Of the wheels' index, where it is free: builds keep their layers while their arguments stay."""
_STAND_INS = """
FROM localhost/troupe-base:2 AS python
COPY ca.crt /etc/ssl/certs/ca-certificates.crt
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN ln -sf /usr/bin/python3 /usr/local/bin/python
FROM localhost/troupe-base:2 AS redis
RUN apt-get update && apt-get install -y --no-install-recommends redis-server \\
 && ln -s /usr/bin/redis-server /usr/local/bin/valkey-server \\
 && ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli \\
 && install -d -o 999 -g 1000 /data
WORKDIR /data
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


def find_engine() -> dict[str, str] | None:
    """The variables under which an engine answers, or None."""
    script = ROOT / "scripts" / "docker_engine.py"
    argv = [sys.executable, str(script), "start"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=1500, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout)


@dataclass
class Engine:
    """The compose project of the tests. ``url`` is the router's, from outside.

    ``more`` are files beside docker-compose.yml, and ``settings`` the variables that they read.
    """

    variables: Mapping[str, str]
    folder: Path
    port: int
    project: str = PROJECT
    more: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    _index: http.server.ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Have base images: the public ones, or else what Debian's packages make of them."""
        self._environment = {
            **os.environ,
            **self.variables,
            **self.settings,
            "DOCKER_BUILDKIT": "1",
            "TROUPE_REST_PORT": str(self.port),
        }
        for variable, (public, target) in BASES.items():
            if variable in os.environ:
                continue
            pulled = self.docker("pull", "--quiet", public, check=False, timeout_s=300)
            if pulled.returncode != 0:
                self._environment[variable] = self._stand_in(target)
        if "TROUPE_TORCH_INDEX" not in os.environ:
            self._serve_torch()
        # Builds reach a package index of this machine, if that is what it has.
        services = (*SERVICES[1:], "model")
        override = "services:\n" + "".join(
            f"  {name}: {{build: {{network: host}}}}\n" for name in services
        )
        (self.folder / "network.yml").write_text(override, encoding="utf-8")

    @contextlib.contextmanager
    def up(self) -> Generator[None]:
        """Built and healthy meanwhile; gone afterwards."""
        self.prepare()
        try:
            self.compose("up", "-d", "--build", "--wait", "--wait-timeout", "600", timeout_s=2700)
            yield
        finally:
            self.compose("down", "-v", "--remove-orphans", "--timeout", "20", timeout_s=120)
            self.close()

    def compose(
        self, *arguments: str, timeout_s: float = 120, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run `docker compose` on the project."""
        own = [ROOT / name for name in ("docker-compose.yml", *self.more)]
        files = [*own, self.folder / "network.yml"]
        named = [part for path in files for part in ("--file", str(path))]
        argv = ["compose", "--project-name", self.project, "--project-directory", str(ROOT), *named]
        return self.docker(*argv, *arguments, timeout_s=timeout_s, check=check)

    def docker(
        self, *arguments: str, timeout_s: float = 120, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run `docker`; a failure shows what it said."""
        argv: Sequence[str] = ["docker", *arguments]
        done = subprocess.run(
            argv,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    def image(self, variable: str) -> str:
        """The base image that a variable of docker-compose.yml names here."""
        return self._environment.get(variable, BASES[variable][0])

    def container(self, service: str) -> str:
        """Id of the service's container."""
        return self.compose("ps", "--quiet", service).stdout.strip()

    def health(self, service: str) -> str:
        """Health of the service's container, and how often it was restarted: "healthy/0"."""
        shown = "{{.State.Health.Status}}/{{.RestartCount}}"
        done = self.docker("inspect", "--format", shown, self.container(service), check=False)
        return done.stdout.strip()

    def _serve_torch(self) -> None:
        """Offer the CPU wheel of torch to the builds, where this machine's pip knows one.

        An index on loopback is one that pip trusts; the builds share the host's network.
        """
        wheels = self.folder / "index" / "simple" / "torch"
        wheels.mkdir(parents=True)
        [pin] = [
            line
            for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
            if line.startswith("torch==")
        ]
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(wheels), pin]
        # PyPI's own wheel is half a gigabyte and is loaded by the build itself.
        if importlib.metadata.version("torch").endswith("+cpu"):
            subprocess.run(argv, check=False, capture_output=True, timeout=600)
        if not list(wheels.glob("*+cpu*.whl")):
            return
        root = functools.partial(_Quiet, directory=str(self.folder / "index"))
        try:
            self._index = http.server.ThreadingHTTPServer(("127.0.0.1", INDEX_PORT), root)
        except OSError:
            self._index = http.server.ThreadingHTTPServer(("127.0.0.1", 0), root)
        threading.Thread(target=self._index.serve_forever, daemon=True).start()
        port = self._index.server_address[1]
        self._environment["TROUPE_TORCH_INDEX"] = f"http://127.0.0.1:{port}/simple"

    def close(self) -> None:
        """End what serves the builds."""
        if self._index is not None:
            self._index.shutdown()
            self._index.server_close()

    def _stand_in(self, target: str) -> str:
        image = f"localhost/troupe-{target}:2"
        if self.docker("image", "inspect", image, check=False).returncode == 0:
            return image
        base = self.docker("image", "inspect", "localhost/troupe-base:2", check=False)
        if base.returncode != 0:
            self._make_base()
        context = self.folder / "stand-ins"
        context.mkdir(exist_ok=True)
        (context / "Dockerfile").write_text(_STAND_INS, encoding="utf-8")
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", context / "ca.crt")
        argv = ["build", "--network", "host", "--target", target, "--tag", image, str(context)]
        self.docker(*argv, timeout_s=600)
        return image

    def _make_base(self) -> None:
        """A Debian with Python, from the machine's own package mirror."""
        if shutil.which("mmdebstrap") is None:
            install = ["apt-get", "install", "-y", "--no-install-recommends", "mmdebstrap"]
            subprocess.run(install, check=True, capture_output=True, timeout=300)
        tar = self.folder / "base.tar"
        # As in the public slim images: no documentation, no languages, no perl beyond dpkg's.
        packages = "python3,python3-venv,python3-pip,ca-certificates,usr-is-merged"
        argv = ["mmdebstrap", "--variant=minbase", f"--include={packages}"]
        argv += [f"--dpkgopt=path-exclude=/usr/share/{f}/*" for f in ("doc", "locale", "man")]
        argv += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "bookworm", str(tar)]
        subprocess.run(argv, check=True, capture_output=True, timeout=900)
        self.docker("import", str(tar), "localhost/troupe-base:2", timeout_s=300)
        tar.unlink()


def submit(engine: Engine, spec: dict[str, Any]) -> str:
    """Submit a job; its id."""
    answer = httpx.post(f"{engine.url}/v1/jobs", json=spec, timeout=30)
    answer.raise_for_status()
    return str(answer.json()["job_id"])


def await_job(
    engine: Engine, job_id: str, holds: Callable[[dict[str, Any]], bool], *, timeout_s: float = 1800
) -> dict[str, Any]:
    """The job once it is as wanted; a router that is away for a moment is asked again."""
    deadline = time.monotonic() + timeout_s
    job: dict[str, Any] = {}
    while time.monotonic() < deadline:
        try:
            job = httpx.get(f"{engine.url}/v1/jobs/{job_id}", timeout=10).json()
            if holds(job):
                return job
        except httpx.HTTPError:
            pass
        assert job.get("state") != "failed", job.get("reason")
        time.sleep(0.5)
    raise AssertionError(f"never as wanted: {job}")
