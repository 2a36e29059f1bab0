"""A guest, its tool servers and its service: whichever is killed, nothing of the guest goes on."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe.errors import UnavailableError
from troupe_tasks.importers import process

_GONE_S = 20.0
_STUB = """
import os, subprocess

class Served:
    def __init__(self):
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        server = subprocess.Popen(["sleep", "300"], start_new_session=True, **quiet)
        self.server = server.pid

    def pids(self):
        return [os.getpid(), self.server]

    def die(self):
        os.kill(os.getpid(), 9)

    def spin(self):
        while True:
            pass

def opened():
    return Served()
"""
_SERVICE = """
import sys
from pathlib import Path
from troupe_tasks.importers import process

process.GUEST = Path(sys.argv[1])
guest = process.GuestProcess(sys.executable, "stub_guest", {}, start_s=30)
print(*guest.ask("pids", cpu_s=30, timeout_s=30), flush=True)
guest.ask("spin", cpu_s=300, timeout_s=300)
"""


@pytest.fixture
def served_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guest's own ``serve.py``, beside an environment that starts a tool server."""
    folder = tmp_path / "guest"
    shutil.copytree(process.GUEST.parent, folder)
    (folder / "stub_guest.py").write_text(_STUB)
    monkeypatch.setattr(process, "GUEST", folder / "serve.py")
    return folder / "serve.py"


@pytest.fixture
def guest(served_by: Path) -> Iterator[process.GuestProcess]:
    made = process.GuestProcess(sys.executable, "stub_guest", {}, start_s=30)
    yield made
    made.close()


def pids(guest: process.GuestProcess) -> list[int]:
    return guest.ask("pids", cpu_s=10, timeout_s=10)


def have_ended(pids: list[int], within_s: float) -> bool:
    """Whether all of ``pids`` end in time; what does not is killed."""
    has_all_ended = True
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            held = os.pidfd_open(pid)
            try:
                if not select.select([held], [], [], within_s)[0]:
                    has_all_ended = False
                    os.kill(pid, signal.SIGKILL)
            finally:
                os.close(held)
    return has_all_ended


def test_tool_server_when_its_guest_was_killed_then_ends_too(guest: process.GuestProcess) -> None:
    begun = pids(guest)
    with pytest.raises(UnavailableError, match="ended"):
        guest.ask("die", cpu_s=10, timeout_s=10)
    assert have_ended(begun, 0), "all is over when the error is raised"


def test_tool_server_when_the_guest_is_closed_then_ends_too(guest: process.GuestProcess) -> None:
    begun = pids(guest)
    guest.close()
    assert have_ended(begun, 0)


def test_guest_when_it_answers_again_then_its_processor_time_is_counted(
    guest: process.GuestProcess,
) -> None:
    pids(guest)
    with pytest.raises(process.SpentError):
        guest.ask("spin", cpu_s=0.3, timeout_s=60)
    assert pids(guest)[0] > 0


def test_guest_when_its_service_is_killed_while_it_computes_then_ends_with_its_tool_server(
    served_by: Path,
) -> None:
    service = subprocess.Popen(
        [sys.executable, "-c", _SERVICE, str(served_by)], stdout=subprocess.PIPE
    )
    assert service.stdout is not None
    begun = [int(pid) for pid in service.stdout.readline().split()]
    service.kill()
    service.wait(10)
    service.stdout.close()
    assert len(begun) == 2
    assert have_ended(begun, _GONE_S)
