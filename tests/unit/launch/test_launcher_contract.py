"""The suite of all launchers, on this machine's processes and on the fake cluster."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kube_fake import FakeCluster
from kube_suite_world import SuiteCluster
from kube_world import ClusterWorld
from kubernetes.aio import client
from launcher_suite import *  # noqa: F403 (the tests)
from launcher_suite import World

from troupe.runtime.launch.launcher import Component
from troupe.runtime.launch.local import LocalLauncher, RestartPolicy

_BODY = """
import pathlib, sys, time
orders = pathlib.Path(sys.argv[1])
for _ in range(60_000):
    if orders.exists():
        code, _, words = orders.read_text().partition(" ")
        orders.unlink()
        print(words, flush=True)
        sys.exit(int(code))
    time.sleep(0.01)
"""


class LocalWorld:
    """Processes that end when a file tells them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def launcher(self) -> LocalLauncher:
        fast = RestartPolicy(first_s=0.3, longest_s=0.3, max_restarts=3, window_s=60.0)
        return LocalLauncher(self._folder, restarts=fast, grace_s=1.0)

    def component(self, name: str, *, restarts: bool = True, **env: str) -> Component:
        argv = (sys.executable, "-S", "-c", _BODY, str(self._folder / f"{name}.order"))
        return Component(name, "", env, restarts=restarts, argv=argv)

    async def life(self, name: str) -> str:
        # A process has no command line yet when its exec has just closed the parent's pipe.
        async with asyncio.timeout(30):
            while not (found := [pid for pid, of in self._running() if of == name]):  # noqa: ASYNC110 (/proc tells nobody)
                await asyncio.sleep(0.005)
        [pid] = found
        return str(pid)

    async def kill(self, name: str) -> None:
        os.kill(int(await self.life(name)), signal.SIGKILL)

    async def exit(self, name: str, code: int, words: str = "") -> None:
        order = self._folder / f"{name}.order"
        part = order.with_suffix(".part")
        part.write_text(f"{code} {words}")
        part.rename(order)
        async with asyncio.timeout(30):
            while order.exists():  # noqa: ASYNC110 (a file tells nobody)
                await asyncio.sleep(0.005)

    async def num_running(self) -> int:
        return len(self._running())

    def _running(self) -> list[tuple[int, str]]:
        """Pid and name of this world's living processes."""
        found: list[tuple[int, str]] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            last = Path(argv[-2].decode()) if len(argv) > 2 else Path()
            if last.parent == self._folder and last.suffix == ".order":
                found.append((int(entry.name), last.stem))
        return found


@pytest.fixture(params=["local", "fake cluster"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "local":
        local = LocalWorld(tmp_path)
        yield local
        for owner in ("job", "other"):
            await local.launcher().stop(owner, grace_s=0.2)
        return
    async with FakeCluster() as fake:
        configuration = client.Configuration(host=fake.url)
        cluster = ClusterWorld(configuration, "troupe", plays=True)
        await cluster.install()
        async with cluster.running():
            yield SuiteCluster(cluster)
