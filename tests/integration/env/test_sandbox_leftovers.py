"""Files of programs at level gvisor-pod, whose code runs here without gVisor and its probe."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings

PID = os.getpid()
"""Part of each name in a shared folder: other test sessions may be at work there."""
UID = 60_000 + PID % 4_000
"""Likewise, since the tests look for all files of this user; sandboxes begin at 64,000."""
LIMITS = Limits(wall_time_s=20.0, cpu_time_s=20.0, file_bytes=1 << 20)
SHARED = ("/tmp", "/var/tmp", "/dev/shm")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="programs get a user of their own")

LEAVES = f"""
import os, sys
left, closed = "/left-{PID}", "/closed-{PID}"
for folder in ('/tmp', '/var/tmp', '/dev/shm', *sys.stdin.read().split()):
    try:
        open(folder + left, 'w').write('what an earlier run knew')
        os.mkdir(folder + closed)
        os.makedirs(folder + closed + '/a/b')
        open(folder + closed + '/a/b/file', 'w')
        os.symlink('/etc', folder + closed + '/link')
        os.chmod(folder + closed + '/a', 0)
        os.chmod(folder + closed, 0)
    except FileNotFoundError:
        pass
os.chmod(os.getcwd(), 0)
print('left')
"""
DEEP = f"""
import os
os.chdir('/tmp')
for _ in range(60):
    os.mkdir('d' * 200 + '-{PID}')
    os.chdir('d' * 200 + '-{PID}')
open('deepest', 'w')
"""
FILLS = """
import os, time
for n in range(40):
    open({path!r} + str(n), 'wb').write(b'x' * (1 << 20))
time.sleep({pause})
print('filled')
"""
POD = """
import ctypes, os, sys
for capability in {*range(41)} - {0, 5, 6, 7}:
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
"""Starts Python as root with the chart's capabilities: CHOWN, KILL, SETGID, SETUID."""
IN_POD = f"""
import os
from pathlib import Path
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings
settings = SandboxSettings(level="gvisor-pod", workers=1, first_uid={UID})
sandbox = LocalSandbox(settings, "gvisor-pod")
source = "import os; os.mkdir('/tmp/shut-{PID}', 0o700); os.mkdir('a', 0o700); open('a/b', 'w')"
done = sandbox.run(Program(source), Limits())
guard, = sandbox.worker_pids
folder, = Path("/tmp").glob(f"troupe-run-{{guard}}-*")
print(done.exit_code, done.limit, os.listdir(folder), Path("/tmp/shut-{PID}").exists())
fills = "for n in range(9): open(f'f{{n}}', 'wb').write(b'x' * (1 << 20))"
print(sandbox.run(Program(fills), Limits(file_bytes=1 << 20)).limit)
sandbox.close()
print(folder.exists())
"""


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    settings = SandboxSettings(level="gvisor-pod", workers=1, first_uid=UID)
    opened = LocalSandbox(settings, "gvisor-pod")
    yield opened
    opened.close()
    assert left() == []


def left() -> list[str]:
    """Files of the programs' user in shared folders, and the runs' folders with such files."""
    found: list[str] = []
    for shared in SHARED:
        for folder, folders, files in os.walk(shared):
            for name in files:
                _look_at(Path(folder, name), found)
            folders[:] = [name for name in folders if _look_at(Path(folder, name), found)]
    return found


def _look_at(path: Path, found: list[str]) -> bool:
    """Whether a folder may hold files of the programs' user; adds its own to ``found``."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if status.st_uid == UID:
        found.append(str(path))
    return (
        status.st_uid == UID
        or bool(status.st_mode & stat.S_IWOTH)
        or path.name.startswith("troupe-run-")
    )


def run(sandbox: LocalSandbox, source: str, stdin: str = "") -> Execution:
    return sandbox.run(Program(source, stdin=stdin), LIMITS)


def test_run_when_it_left_files_outside_its_folder_then_they_are_gone_and_others_stay(
    sandbox: LocalSandbox,
) -> None:
    kept = Path(f"/var/tmp/troupe-open-{PID}")
    kept.mkdir()
    kept.chmod(0o777)
    try:
        (kept / "ours").write_text("of another user")
        done = run(sandbox, LEAVES, str(kept))
        assert (done.stdout, done.limit) == ("left\n", None), done
        assert left() == []
        assert [path.name for path in kept.iterdir()] == ["ours"]
        assert Path("/etc/hostname").exists()
    finally:
        for path in kept.iterdir():
            path.unlink()
        kept.rmdir()


@pytest.mark.parametrize("path", ["f", "/tmp/troupe-fills-", "/dev/shm/troupe-fills-"])
@pytest.mark.parametrize("pause", [0, 19])
def test_run_when_many_files_are_more_than_its_limit_then_is_ended_for_it(
    path: str, pause: int, sandbox: LocalSandbox
) -> None:
    done = run(sandbox, FILLS.format(path=f"{path}{PID}-", pause=pause))
    assert done.limit == "file_size", done
    assert done.wall_time_s < 10
    assert left() == []


def test_run_when_its_folders_are_too_deep_to_look_into_then_is_ended_and_they_are_gone(
    sandbox: LocalSandbox,
) -> None:
    assert run(sandbox, DEEP).limit == "file_size"
    assert left() == []


def test_run_when_its_files_are_very_many_then_is_ended_for_it(sandbox: LocalSandbox) -> None:
    source = f"for n in range(3000): open(f'/tmp/troupe-many-{PID}-{{n}}', 'w')\nprint('made')"
    assert run(sandbox, source).limit == "file_size"


def test_run_when_it_writes_up_to_its_limit_then_is_fine(sandbox: LocalSandbox) -> None:
    source = "open('f', 'wb').write(b'x' * (1 << 20))\nopen('f', 'w').write('y')\nprint('ok')"
    done = run(sandbox, source)
    assert (done.stdout, done.limit, done.exit_code) == ("ok\n", None, 0)


def test_run_when_root_has_only_the_charts_capabilities_then_nothing_is_left_either() -> None:
    asked = [sys.executable, "-c", POD, IN_POD]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    assert done.stdout == "0 None [] False\nfile_size\nFalse\n", done.stderr


def test_worker_when_it_starts_then_removes_what_a_killed_one_left(sandbox: LocalSandbox) -> None:
    old = Path(f"/tmp/troupe-old-{PID}")
    old.write_text("of a service that was killed")
    os.chown(old, UID, UID)
    assert run(sandbox, "print(1)").is_ok
    assert not old.exists()


def test_worker_when_its_guard_is_killed_after_a_run_then_ends_too(sandbox: LocalSandbox) -> None:
    assert run(sandbox, "print(1)").is_ok
    (guard,) = sandbox.worker_pids
    (worker,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    os.kill(guard, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(worker)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
