"""What the router's admin port says while Redis is away."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


@pytest.fixture
def admin(
    tmp_path: Path, free_port: Callable[[], int], own_valkey_server: Any
) -> Iterator[httpx.Client]:
    """A client of the admin port of a router on a Redis of its own."""
    port = free_port()
    settings = {
        "GRPC_ADDRESS": "127.0.0.1:0",
        "REST_ADDRESS": "127.0.0.1:0",
        "ADMIN_ADDRESS": f"127.0.0.1:{port}",
        "REDIS_URL": own_valkey_server.url,
        "RUNS_DIR": str(tmp_path / "runs"),
        "LAUNCHER": "none",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    variables = {f"TROUPE_ROUTER_{name}": value for name, value in settings.items()}
    argv = [sys.executable, "-m", "troupe_router"]
    process = subprocess.Popen(argv, env={**inherited, **variables})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def until(admin: httpx.Client, line: str) -> None:
    """Wait until /metrics has ``line``."""
    deadline = time.monotonic() + 120
    while True:
        try:
            if line in admin.get("/metrics").text.splitlines():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, line
        time.sleep(0.2)


@pytest.mark.timeout(300)
def test_admin_port_when_redis_is_away_then_says_so_and_again_when_it_is_back(
    admin: httpx.Client, own_valkey_server: Any
) -> None:
    until(admin, 'troupe_service_is_serving{service="router"} 1.0')
    until(admin, "troupe_router_redis_is_unreachable 0.0")
    assert admin.get("/metrics/targets").json() == []
    own_valkey_server.stop()
    until(admin, "troupe_router_redis_is_unreachable 1.0")
    assert admin.get("/metrics/targets").status_code == 503
    own_valkey_server.start()
    until(admin, "troupe_router_redis_is_unreachable 0.0")
    assert admin.get("/metrics/targets").json() == []
