"""What a router measures beside its jobs, and what it does when that fails."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fleet_world import until

from troupe.runtime.disk_space import DiskSpace
from troupe_router import app as app_module
from troupe_router.app import RouterApp
from troupe_router.settings import RouterSettings

WAIT_S = 30.0


class FailingDisk(DiskSpace):
    """Fails at the first look."""

    def __init__(self, folder: Path, error: Exception) -> None:
        super().__init__(folder, needed_bytes=1)
        self.error = error
        self.num_looks = 0

    def look(self) -> bool:
        self.num_looks += 1
        if self.num_looks == 1:
            raise self.error
        return super().look()


@pytest.fixture
async def router(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RouterApp]:
    monkeypatch.setattr(app_module, "_DISK_S", 0.01)
    settings = RouterSettings(
        redis_url=redis_url, rest_address="127.0.0.1:0", runs_dir=tmp_path, launcher="none"
    )
    app = RouterApp(settings)
    await app.connect()
    await app.warm("127.0.0.1:1")
    yield app
    await app.close()


async def test_watch_when_it_fails_for_an_unknown_reason_then_the_router_ends(
    router: RouterApp, tmp_path: Path
) -> None:
    router._disk = FailingDisk(tmp_path, ValueError("no such number"))
    with pytest.raises(ValueError, match="no such number"):
        async with asyncio.timeout(WAIT_S):
            await router.run()


async def test_watch_when_the_machine_lacks_a_thread_then_it_looks_again(
    router: RouterApp, tmp_path: Path
) -> None:
    disk = router._disk = FailingDisk(tmp_path, RuntimeError("can't start new thread"))
    running = asyncio.create_task(router.run())
    await until(lambda: disk.num_looks >= 2 or running.done())
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
