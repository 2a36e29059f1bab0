"""A thousand runs leave nothing in the memory of those that follow: searched from both sides."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import canaries
import pytest
import reaches
from sandbox_here import skip_or_fail
from watched_host import TALLY

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings

_CANARY = re.compile(rb"CNRY[A-Y](\d{8})")
_SEARCH_WITH_CONTROL = ("the heap", "the mapped region", "the arenas of objects")


@pytest.fixture(scope="module")
def planted(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    """A sandbox of one worker whose earlier runs were full of canaries."""
    try:
        opened = open_sandbox(SandboxSettings(level="namespaces", workers=1))
    except InvalidArgumentError as error:
        skip_or_fail(error)
    is_full = request.config.getoption("--sandbox-full", default=False)
    for number in range(1_000 if is_full else 30):
        canaries.plant(opened, number)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", reaches.MEMORY)
def test_memory_when_searched_from_inside_then_holds_nothing_of_earlier_runs(
    planted: LocalSandbox, name: str
):
    tally = f"a thousand earlier runs by {name}"
    TALLY[tally] = False
    source = canaries.looker(reaches.MEMORY[name])
    done = planted.run(Program(source, stdin=canaries.CONTROL), canaries.PATIENT)
    assert done.is_ok, done
    assert "ESCAPED" not in done.stdout, done.stdout
    assert "CONTROL" in done.stdout or name not in _SEARCH_WITH_CONTROL
    TALLY[tally] = True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads another process's memory")
def test_memory_when_searched_from_outside_then_only_the_one_that_serves_holds_runs(
    planted: LocalSandbox,
):
    canaries.plant(planted, 77)
    (waiting,) = planted.worker_pids
    (serving,) = _children(waiting)
    deadline = time.monotonic() + 20
    while len(_children(serving)) > 1:  # the last run's first process may be on its way out
        assert time.monotonic() < deadline
    (template,) = _children(serving)
    assert b"00000077" in _canaries_of(serving)  # the search finds what is there
    assert _canaries_of(template) == set()
    assert planted.run(Program("print(1)"), Limits()).is_ok
    assert _canaries_of(template) == set()


def _children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _canaries_of(pid: int) -> set[bytes]:
    found: set[bytes] = set()
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            try:
                memory.seek(start)
                found |= set(_CANARY.findall(memory.read(end - start)))
            except (OSError, OverflowError):  # the kernel's own pages
                continue
    return found
