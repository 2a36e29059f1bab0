"""The fault seam: silent unless asked, one process obeys one file, a full disk stays full."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from troupe.runtime.faults import obey, reached

PROGRAM = """
from troupe.runtime.faults import reached
for step in range(3):
    reached("worker.step", at=step)
    print(step, flush=True)
"""


def start(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "TROUPE_FAULTS_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
    )


def wait_stopped(pid: int) -> None:
    """Until the process is in state T of /proc."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "the process never stopped"
        time.sleep(0.01)


def test_reached_when_no_folder_is_set_then_nothing_happens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TROUPE_FAULTS_DIR", raising=False)
    assert reached("worker.step") is None


def test_obey_when_nothing_is_asked_for_then_nothing_happens(tmp_path: Path):
    obey(tmp_path, "worker.step")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "code"), [("enospc", errno.ENOSPC), ("edquot", errno.EDQUOT)])
def test_obey_when_the_disk_is_full_then_it_stays_full_until_the_file_goes(
    tmp_path: Path, kind: str, code: int
):
    (tmp_path / "disk").write_text(f"{kind}\n")
    for _ in range(2):
        with pytest.raises(OSError) as raised:
            obey(tmp_path, "disk")
        assert raised.value.errno == code
    assert (tmp_path / f"disk.{os.getpid()}").exists()
    (tmp_path / "disk").unlink()
    obey(tmp_path, "disk")


def test_process_when_a_visit_is_asked_for_then_stands_exactly_there_and_goes_on(tmp_path: Path):
    (tmp_path / "worker.step@1").touch()
    with start(tmp_path) as process:
        wait_stopped(process.pid)
        assert [path.name for path in tmp_path.iterdir()] == [f"worker.step@1.{process.pid}"]
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "1\n2\n"
    assert process.returncode == 0


def test_process_when_killed_at_a_point_then_did_nothing_after_it(tmp_path: Path):
    (tmp_path / "worker.step").touch()
    with start(tmp_path) as process:
        wait_stopped(process.pid)
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert process.returncode == -signal.SIGKILL


def test_processes_when_two_reach_a_point_then_one_obeys(tmp_path: Path):
    (tmp_path / "worker.step@2").touch()
    with start(tmp_path) as one, start(tmp_path) as two:
        deadline = time.monotonic() + 60
        while len(marks := list(tmp_path.glob("worker.step@2.*"))) != 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stopped = int(marks[0].suffix[1:])
        wait_stopped(stopped)
        (other,) = {one.pid, two.pid} - {stopped}
        free = one if one.pid == other else two
        assert free.wait(timeout=60) == 0
        os.kill(stopped, signal.SIGCONT)
