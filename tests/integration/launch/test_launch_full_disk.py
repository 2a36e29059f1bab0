"""Launcher, embedded server and logs on a small file system that is really full (needs root)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from small_disk import Ballast, small_disk

from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.launch.launcher import EXIT_CONFIGURATION, Component, ComponentStatus
from troupe.runtime.launch.local import LocalLauncher, RestartPolicy
from troupe.runtime.launch.processes import ProcessId, identify, look
from troupe.runtime.launch.records import ProcRecord, load_record
from troupe.runtime.streams import embedded

FAST = RestartPolicy(first_s=0.01, longest_s=0.05, max_restarts=3, window_s=60.0)
NEEDED = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 32 << 20) as folder:
        yield folder


@pytest.fixture
def ballast(disk: Path) -> Ballast:
    return Ballast(disk)


@pytest.fixture
async def launcher(disk: Path) -> AsyncIterator[LocalLauncher]:
    launcher = LocalLauncher(disk, restarts=FAST)
    yield launcher
    await launcher.stop("job", grace_s=0.2)


def python(code: str) -> Component:
    return Component("a", "", argv=(sys.executable, "-c", code))


def wait_for_end(process: ProcessId) -> None:
    deadline = time.monotonic() + 60
    while look(process).is_alive:
        assert time.monotonic() < deadline, process
        time.sleep(0.01)


async def until(
    launcher: LocalLauncher, component: Component, holds: Callable[[ComponentStatus], bool]
) -> ComponentStatus:
    deadline = time.monotonic() + 60
    while True:
        (status,) = await launcher.reconcile("job", [component])
        if holds(status):
            return status
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.01)


def test_space_when_room_comes_and_goes_then_short_below_one_limit_until_above_another(
    disk: Path, ballast: Ballast
) -> None:
    space = DiskSpace(disk, needed_bytes=NEEDED)
    assert not space.look()
    assert space.sentence == ""
    ballast.fill(leave_bytes=NEEDED // 2)
    assert space.look()
    assert "has 0 MiB free and needs 1 MiB" in space.sentence
    began = space.shortage
    ballast.free()
    ballast.fill(leave_bytes=NEEDED * 3 // 2)
    assert space.look(), "it must not go on and stop in turn"
    ballast.free()
    assert not space.look()
    assert began is not None
    assert space.shortage is not None
    assert space.shortage.began_at == began.began_at < space.shortage.ended_at


def test_space_when_there_are_no_inodes_then_is_short(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 32 << 20, num_files=40) as folder:
        space = DiskSpace(folder, needed_bytes=0)
        assert space.look()
        assert "no free inodes" in space.sentence


@pytest.mark.parametrize("num_bytes", [10, 3000, 9000])
def test_record_when_the_disk_is_full_then_is_saved_in_its_own_place(
    disk: Path, ballast: Ballast, num_bytes: int
) -> None:
    ProcRecord("a", "digest", "log", pid=7, detail="x" * 2000).save(disk)
    ballast.fill()
    ProcRecord("a", "digest", "log", pid=8, restarts=3, detail="y" * num_bytes).save(disk)
    record = load_record(disk, "a")
    assert record is not None
    assert (record.pid, record.restarts) == (8, 3)
    assert set(record.detail) <= {"y"}
    with pytest.raises(OSError, match="No space left"):
        ProcRecord("b", "digest", "log").save(disk)
    assert load_record(disk, "b") is None


async def test_process_when_it_dies_of_a_full_disk_then_is_never_given_up(
    launcher: LocalLauncher, disk: Path, ballast: Ballast
) -> None:
    flag = disk / "flag"
    component = python(
        "import os, sys, time\n"
        f"file = os.open({str(flag)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "try: os.write(file, bytes(8192))\n"
        "except OSError: sys.exit(3)\n"
        "time.sleep(600)\n"
    )
    ballast.fill()
    waiting = await until(launcher, component, lambda s: s.state != "running")
    assert (waiting.state, waiting.condition) == ("waiting", "DiskFull")
    ballast.free()
    await until(launcher, component, lambda s: flag.is_file() and s.state == "running")
    ballast.fill()
    (status,) = await launcher.reconcile("job", [component])
    assert status.pid
    os.kill(status.pid, signal.SIGKILL)
    await until(launcher, component, lambda s: s.restarts > 2 * FAST.max_restarts)
    ballast.free()
    pids = {None}

    def stays(status: ComponentStatus) -> bool:
        is_same = status.state == "running" and status.pid in pids
        pids.add(status.pid)
        return is_same

    await until(launcher, component, stays)


async def test_process_when_the_disk_is_freed_after_its_death_then_is_not_given_up(
    launcher: LocalLauncher, disk: Path, ballast: Ballast
) -> None:
    flag = disk / "flag"
    component = python(
        "import os, sys, time\n"
        f"if not os.path.exists({str(flag)!r}): sys.exit({EXIT_CONFIGURATION})\n"
        "time.sleep(600)\n"
    )
    ballast.fill(leave_bytes=NEEDED)  # short, and what the launcher writes fits
    status = await until(launcher, component, lambda s: s.restarts > 1 and s.state == "running")
    process = identify(status.pid or 0)
    assert process is not None
    wait_for_end(process)
    ballast.free()
    flag.touch()
    await until(launcher, component, lambda s: s.state == "running" and s.pid != status.pid)


def test_server_when_the_disk_is_full_then_answers_reads_and_refuses_writes(
    disk: Path, ballast: Ballast, free_port: Callable[[], int]
) -> None:
    port = free_port()
    with serving(port, disk) as client:
        for number in range(50):
            client.set(f"lasts{number}", number)
            client.set(f"ends{number}", number, px=1500)
        ballast.fill()
        with pytest.raises(redis.ConnectionError):
            for _ in range(1000):
                client.set("big", bytes(4096))
    with serving(port, disk, takes_writes=False) as client:
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            client.set("more", 1)
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            client.eval("return redis.call('SET', KEYS[1], '1')", 1, "more")
        deadline = time.monotonic() + 30
        while client.exists("ends0"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.get("lasts49") == b"49", "keys that expire must not end the server"
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
    ballast.free()
    with serving(port, disk) as client:
        assert [client.get(f"lasts{n}") for n in range(50)] == [b"%d" % n for n in range(50)]
        assert client.get("more") is None
        assert client.set("more", 1)


@contextmanager
def serving(port: int, folder: Path, *, takes_writes: bool = True) -> Generator["redis.Redis"]:
    """A client of a server that runs inside the block."""
    argv = embedded.server_argv(port, folder, takes_writes=takes_writes)
    with (
        redis.Redis(port=port, socket_timeout=10, retry=None) as client,
        subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process,
    ):
        deadline = time.monotonic() + 60
        while not answers(client):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        try:
            yield client
        finally:
            process.terminate()


def answers(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


LOGGING = """
import sys
from troupe.runtime.telemetry.logging import configure_logging, get_logger
import logging
configure_logging("test")
for number in range(200):
    get_logger("a").info("line", number=number, padding="x" * 500)
    logging.getLogger("b").warning("%s", "y" * 500)
print("done", flush=True)
"""


def test_log_when_the_disk_is_full_then_lines_are_lost_and_the_work_is_not(
    disk: Path, ballast: Ballast
) -> None:
    log = disk / "a.log"
    log.touch()
    ballast.fill()
    with log.open("ab") as sink:
        done = subprocess.run(
            [sys.executable, "-c", LOGGING],
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.stdout == "done\n"
