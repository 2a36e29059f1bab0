"""A router with its Valkey as processes, with API keys, and real jobs in it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from platform_world import tiny_spec

from troupe.clients.rest.keys import ApiKey, digest_of
from troupe.runtime.streams import embedded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

KEYS = {"reader": "troupe_reader-of-this-test", "admin": "troupe_admin-of-this-test"}
FINISHED = ("succeeded", "failed", "cancelled")
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&amp;'


@dataclass(frozen=True)
class RouterWorld:
    """A running router. ``client`` holds the admin key."""

    url: str
    redis_url: str
    runs_dir: Path
    client: httpx.Client

    def submit(self, spec: dict[str, Any]) -> str:
        answer = self.client.post("/v1/jobs", json=spec)
        assert answer.status_code == 201, answer.text
        return answer.json()["job_id"]

    def wait_for(self, job_id: str, is_there: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + 160
        while True:
            job = self.client.get(f"/v1/jobs/{job_id}").json()
            if is_there(job):
                return job
            assert time.monotonic() < deadline, f"{job_id} is {job['state']}: {job['reason']}"
            time.sleep(0.25)

    def finish(self, job_id: str) -> dict[str, Any]:
        job = self.wait_for(job_id, lambda job: job["state"] in FINISHED)
        assert job["state"] == "succeeded", job["reason"]
        return job


@contextmanager
def running_router(folder: Path, free_port: Callable[[], int]) -> Iterator[RouterWorld]:
    """Valkey and a router in ``folder``, ended when the block ends."""
    redis_port, rest_port = free_port(), free_port()
    runs_dir, keys = folder / "runs", folder / "keys.yaml"
    runs_dir.mkdir()
    keys.write_text(json.dumps({"keys": [_kept(name, key) for name, key in KEYS.items()]}))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")} | {
        "TROUPE_ROUTER_REST_ADDRESS": f"127.0.0.1:{rest_port}",
        "TROUPE_ROUTER_GRPC_ADDRESS": f"127.0.0.1:{free_port()}",
        "TROUPE_ROUTER_REDIS_URL": embedded.url(redis_port),
        "TROUPE_ROUTER_RUNS_DIR": str(runs_dir),
        "TROUPE_ROUTER_API_KEYS": str(keys),
    }
    commands = (
        embedded.server_argv(redis_port, folder, fsync="no"),
        [sys.executable, "-m", "troupe_router"],
    )
    processes: list[subprocess.Popen[bytes]] = []
    with (folder / "processes.log").open("wb") as log:
        try:
            for command in commands:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
                processes.append(process)
            url = f"http://127.0.0.1:{rest_port}"
            headers = {"Authorization": f"Bearer {KEYS['admin']}"}
            with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
                _wait_until_up(client, processes[-1], folder / "processes.log")
                yield RouterWorld(url, embedded.url(redis_port), runs_dir, client)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(timeout=30)


@contextmanager
def visitor(
    chromium: "Browser", world: RouterWorld, *, width: int = 1280, **more: Any
) -> Iterator["BrowserContext"]:
    """A window of a visitor who has entered the admin key."""
    viewport: Any = {"width": width, "height": 900}
    found = chromium.new_context(
        base_url=world.url, viewport=viewport, reduced_motion="reduce", **more
    )
    found.set_default_timeout(60_000)
    answer = found.request.post("/v1/session", data={"key": KEYS["admin"]})
    assert answer.ok, answer.text()
    yield found
    found.close()


def _kept(name: str, key: str) -> dict[str, Any]:
    scope = "read" if name == "reader" else "admin"
    kept = ApiKey(name=name, sha256=digest_of(key), scopes=(scope,))
    return kept.model_dump(mode="json", exclude_none=True)


def _wait_until_up(client: httpx.Client, router: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert router.poll() is None, log.read_text()[-3000:]
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


def small_spec(base: Path) -> dict[str, Any]:
    """A job of seconds, evaluated before and after."""
    return {**tiny_spec(base), "name": "demo", "eval": {"num_tasks": 8, "every": 3}}
