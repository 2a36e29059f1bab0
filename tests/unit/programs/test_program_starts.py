"""A process that cannot be started: the machine is asked again, a wrong interpreter is told."""

import errno
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe_tasks.importers.process import GuestProcess
from troupe_tasks.programs.launcher import ProgramLauncher


def _program(python: str) -> None:
    launcher = ProgramLauncher(python, preload=[], folder=None, start_s=5)
    try:
        launcher.start(Any, {}, lambda: None)  # pyright: ignore[reportArgumentType]
    finally:
        launcher.close()


def _guest(python: str) -> None:
    guest = GuestProcess(python, "none", {}, start_s=5)
    try:
        guest.ask("rows", cpu_s=1, timeout_s=1)
    finally:
        guest.close()


STARTS = pytest.mark.parametrize("start", [_program, _guest])


@STARTS
@pytest.mark.parametrize("lack", [errno.ENOMEM, errno.EMFILE, errno.EAGAIN])
def test_start_when_the_machine_lacks_something_then_is_retryable(
    start: Callable[[str], None], lack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def popen(*args: Any, **kwargs: Any) -> None:
        raise OSError(lack, "the machine's")

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(UnavailableError, match="cannot be started now"):
        start("/usr/bin/python3")


@STARTS
def test_start_when_there_is_no_interpreter_then_is_refused(start: Callable[[str], None]) -> None:
    with pytest.raises(InvalidArgumentError, match="/none/python cannot be run"):
        start("/none/python")
