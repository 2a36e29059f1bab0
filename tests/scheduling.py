"""Which tests run in one process where there are several, and which where time is short."""

import hashlib
import time
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_BEGAN = time.monotonic()

SLOW = (
    "browser",
    "chaos",
    "contract/test_every_task_conforms.py",
    "e2e",
    "integration/cli/test_cli_platform.py",
    "integration/malformed",
    "integration/publishing/test_published_team_plays.py",
    "integration/rollout/test_weight_memory.py",
    "integration/router/test_router_door.py",
    "integration/router/test_rest_contract.py",
    "integration/router/test_play_processes.py",
    "integration/serving/test_exit_statuses.py",
    "integration/tls/test_tls_job.py",
    "integration/trainer/test_trainer_process.py",
    "unit/conformance/test_audit_programs.py",
    "unit/tasks/test_code_judging.py",
    "unit/tasks/test_code_problems.py",
    "unit/trainer/test_critic.py",
)
"""Files and folders that take long for what most changes need: half of all the time."""

EVERY_TIME = (
    "chaos/test_faults_quick.py",
    "chaos/test_kill_quick.py",
    "chaos/test_power_cut.py",
    "e2e/test_interrupt_and_resume.py",
)
"""Run also where `--start-within` leaves others out."""

SANDBOX = (
    "contract/test_audit.py",
    "contract/test_every_task_conforms.py",
    "integration/env",
    "integration/launch/test_launch_full_disk.py",
    "integration/tls/test_tls_sandbox.py",
    "sandbox",
    "unit/conformance",
    "unit/env",
    "unit/tasks/test_code",
    "unit/tasks/test_math",
)
"""Where a sandbox has no namespaces, a program that kills all it may reaches the programs of the
same user in another sandbox, and attacks look for mounts that are left."""

FOLDERS = ("browser", "chaos", "e2e")
"""Their files share what takes long to make: a router and its jobs, an undisturbed job, a base."""


class GroupScheduling(LoadFileScheduling):
    """Runs in one process: a file's tests, those of one of FOLDERS, and all of SANDBOX.

    Not by marks ``xdist_group``: xdist 3.8 writes them into a field that pytest 9.2 doesn't read.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = _path_of(nodeid)
        folder = path.partition("/")[0]
        if path.startswith(SANDBOX):
            return "sandbox"
        return folder if folder in FOLDERS else path


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `.ci/run` asks for: a run that ends in time on every machine."""
    parser.addoption(
        "--start-within",
        type=float,
        metavar="MINUTES",
        help="begin no test after this time, but those that run every time",
    )
    parser.addoption(
        "--file-order",
        default="",
        metavar="TEXT",
        help="draw the order of the files from this text, so that each is left out at times",
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Where tests run in several processes: the largest groups first, or as they are drawn."""
    config.option.loadscopereorder = not config.getoption("--file-order")
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what is listed above; put files in the order that is asked for."""
    for item in items:
        if _path_of(item.nodeid).startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    if drawn_from := config.getoption("--file-order"):
        items.sort(key=lambda item: _place(_path_of(item.nodeid), drawn_from))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what begins too late."""
    minutes = item.config.getoption("--start-within")
    if minutes is None or _path_of(item.nodeid).startswith(EVERY_TIME):
        return
    if time.monotonic() - _BEGAN > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over; `make test-slow` has no limit")


def _place(path: str, drawn_from: str) -> tuple[bool, str]:
    digest = hashlib.sha256(f"{drawn_from} {path}".encode()).hexdigest()
    return not path.startswith(EVERY_TIME), digest


def _path_of(nodeid: str) -> str:
    """A test's file, under `tests`."""
    return nodeid.split("::", 1)[0].removeprefix("tests/")
