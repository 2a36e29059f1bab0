"""Services of either version as processes, which an upgrade replaces one by one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SERVICES = ("router", "env", "rollout", "trainer")


@dataclass
class Rooms:
    """One process of each service. ``versions`` are the folders with their code."""

    folder: Path
    redis_url: str
    versions: Mapping[str, Path]
    free_port: Callable[[], int]
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _running: dict[str, str] = field(default_factory=dict)
    """service -> the version that it is of"""
    _environments: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        router = f"127.0.0.1:{self.free_port()}"
        self.rest = f"127.0.0.1:{self.free_port()}"
        common = {name: v for name, v in os.environ.items() if not name.startswith("TROUPE_")}
        for service in SERVICES:
            prefix = f"TROUPE_{service.upper()}"
            grpc = router if service == "router" else f"127.0.0.1:{self.free_port()}"
            own = {
                f"{prefix}_GRPC_ADDRESS": grpc,
                f"{prefix}_ADMIN_ADDRESS": f"127.0.0.1:{self.free_port()}",
            }
            if service != "router":
                own[f"{prefix}_ROUTER"] = router
            if service in ("router", "trainer"):
                own[f"{prefix}_REDIS_URL"] = self.redis_url
            self._environments[service] = {**common, **own, "OMP_NUM_THREADS": "1"}
        self._environments["router"] |= {
            "TROUPE_ROUTER_REST_ADDRESS": self.rest,
            "TROUPE_ROUTER_RUNS_DIR": str(self.folder / "runs"),
            "TROUPE_ROUTER_LAUNCHER": "none",
        }

    def start(self, service: str, version: str) -> None:
        """Start the service's process from that version's code."""
        self._running[service] = version
        code = self.versions[version]
        name = f"troupe_{service}"
        is_own_package = (code / "services" / service / name).exists()
        module = name if is_own_package else f"services.{service}"
        with self.log_of(service).open("ab") as log:
            self._processes[service] = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=code,
                env={**self._environments[service], "PYTHONPATH": str(code)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def replace(self, service: str, version: str) -> None:
        """End the service's process as Kubernetes does, and start the other version's."""
        self._end(self._processes[service])
        self.start(service, version)

    def revive(self) -> None:
        """Start again what ended, of the version that it was, as `restart: unless-stopped` does."""
        for service, process in list(self._processes.items()):
            if process.poll() is not None:
                self.start(service, self._running[service])

    def stop(self) -> None:
        """End every process."""
        for process in self._processes.values():
            self._end(process)

    def log_of(self, service: str) -> Path:
        """What the service's processes said."""
        return self.folder / f"{service}.log"

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)
