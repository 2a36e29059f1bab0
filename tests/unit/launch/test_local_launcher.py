"""The local launcher against real processes: adoption, restarts, failures, stopping."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.runtime.launch.launcher import Component, ComponentStatus
from troupe.runtime.launch.local import LocalLauncher, RestartPolicy
from troupe.runtime.launch.records import load_record

FAST = RestartPolicy(first_s=0.01, longest_s=0.05, max_restarts=3, window_s=60.0)


def python(name: str, code: str, *, restarts: bool = True, **env: str) -> Component:
    return Component(name, "", env, restarts=restarts, argv=(sys.executable, "-c", code))


SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[LocalLauncher]:
    launcher = LocalLauncher(tmp_path, restarts=FAST)
    yield launcher
    await launcher.stop("job", grace_s=0.2)


async def until(
    launcher: LocalLauncher, component: Component, holds: Callable[[ComponentStatus], bool]
) -> ComponentStatus:
    deadline = time.monotonic() + 15
    while True:
        (status,) = await launcher.reconcile("job", [component])
        if holds(status):
            return status
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def says(log: Path, text: str) -> None:
    """Wait until a process wrote ``text``."""
    deadline = time.monotonic() + 10
    while text not in await asyncio.to_thread(log.read_text):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_reconcile_twice_starts_one_process(launcher: LocalLauncher) -> None:
    first = await launcher.reconcile("job", [python("a", SLEEPER)])
    second = await launcher.reconcile("job", [python("a", SLEEPER)])
    assert first[0].state == second[0].state == "running"
    assert first[0].pid == second[0].pid


async def test_default_when_the_environment_has_the_variable_then_that_counts(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_SET", "outside")
    shows = "import os; print('of', os.environ['TROUPE_SET'], os.environ['TROUPE_NOT_SET'])"
    defaults = {"TROUPE_SET": "default", "TROUPE_NOT_SET": "default"}
    component = replace(python("a", f"{shows}\n{SLEEPER}"), defaults=defaults)
    await launcher.reconcile("job", [component])
    await says(tmp_path / "job" / "logs" / "a.log", "of outside default")


async def test_another_launcher_adopts_what_runs(launcher: LocalLauncher, tmp_path: Path) -> None:
    (started,) = await launcher.reconcile("job", [python("a", SLEEPER)])
    (adopted,) = await LocalLauncher(tmp_path).reconcile("job", [python("a", SLEEPER)])
    assert (adopted.pid, adopted.restarts) == (started.pid, 0)


async def test_crash_between_start_and_record_loses_no_process(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    (started,) = await launcher.reconcile("job", [python("a", SLEEPER)])
    await says(tmp_path / "job/logs/a.log", "up")
    path = tmp_path / "job/procs/a.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pid": None, "ticks": 0}))
    (adopted,) = await LocalLauncher(tmp_path).reconcile("job", [python("a", SLEEPER)])
    assert (adopted.pid, adopted.restarts) == (started.pid, 0)


async def test_killed_process_is_restarted_and_counted(launcher: LocalLauncher) -> None:
    component = python("a", SLEEPER)
    (started,) = await launcher.reconcile("job", [component])
    assert started.pid
    os.kill(started.pid, signal.SIGKILL)
    again = await until(launcher, component, lambda s: s.restarts == 1 and s.state == "running")
    assert again.pid != started.pid


async def test_exit_code_3_is_a_failure_with_the_log_as_detail(launcher: LocalLauncher) -> None:
    component = python("a", "import sys; print('port 1 is in use'); sys.exit(3)")
    status = await until(launcher, component, lambda s: s.state == "failed")
    assert (status.exit_code, status.restarts) == (3, 0)
    assert "port 1 is in use" in status.detail


def dies(*lines: str, code: int) -> Component:
    """Logs an error with a long traceback, as a service does, says ``lines`` and ends."""
    frames = "Traceback (most recent call last):\n" + '  File "x.py", line 1, in f\n' * 300
    failed = json.dumps({"event": "service.died", "exception": f"{frames}ValueError: too few"})
    said = [failed, *lines, json.dumps({"event": "service.closed"})]
    return python("a", f"print({chr(10).join(said)!r}); raise SystemExit({code})")


async def test_death_when_the_service_says_why_then_that_alone_is_the_detail(
    launcher: LocalLauncher,
) -> None:
    component = dies("a warning", "troupe rollout: Model 'x' can't be loaded.", code=3)
    status = await until(launcher, component, lambda s: s.state == "failed")
    assert status.detail == "troupe rollout: Model 'x' can't be loaded."


async def test_death_when_only_a_traceback_tells_then_its_last_line_is_the_detail(
    launcher: LocalLauncher,
) -> None:
    component = dies("a warning", code=1)
    status = await until(launcher, component, lambda s: s.state == "failed")
    assert "died 4 times" in status.detail
    assert status.detail.endswith("\na warning\nValueError: too few")


async def test_death_when_an_exception_was_handled_before_then_it_is_not_blamed(
    launcher: LocalLauncher,
) -> None:
    handled = json.dumps({"event": "task.failed", "exception": "Traceback ...\nKeyError: 'row 7'"})
    lost = json.dumps({"event": "redis.lost", "level": "error"})
    component = python("a", f"print({handled!r}); print({lost!r}); raise SystemExit(3)")
    status = await until(launcher, component, lambda s: s.state == "failed")
    assert "redis.lost" in status.detail


async def test_program_that_is_missing_is_a_failure(launcher: LocalLauncher) -> None:
    (status,) = await launcher.reconcile("job", [Component("a", "", argv=("/no/such/program",))])
    assert status.state == "failed"
    assert "/no/such/program" in status.detail


async def test_too_many_deaths_are_a_failure(launcher: LocalLauncher) -> None:
    component = python("a", "raise SystemExit(1)")
    status = await until(launcher, component, lambda s: s.state == "failed")
    assert status.restarts == FAST.max_restarts
    assert "died 4 times" in status.detail


@pytest.mark.parametrize("counts_steady", [True, False])
async def test_restart_when_it_ran_for_a_while_then_waits_shortly_and_a_loop_waits_longer(
    tmp_path: Path, counts_steady: bool
) -> None:
    policy = RestartPolicy(first_s=0.25, longest_s=3600.0, max_restarts=3, window_s=3600.0)
    launcher = LocalLauncher(tmp_path, restarts=replace(policy, counts_steady=counts_steady))
    component, folder = python("a", SLEEPER), tmp_path / "job/procs"

    async def wait_after(up_for_s: float) -> float | None:
        """Seconds until the restart of a life that had begun ``up_for_s`` ago; None: given up."""
        record = load_record(folder, "a")
        if record is not None:
            record.restart_at = 0.0
            record.save(folder)
        (status,) = await launcher.reconcile("job", [component])
        record = load_record(folder, "a")
        assert status.pid and record
        record.started_at = time.time() - up_for_s
        record.save(folder)
        os.kill(status.pid, signal.SIGKILL)
        status = await until(launcher, component, lambda s: s.state in ("restarting", "failed"))
        record = load_record(folder, "a")
        assert record
        return None if status.state == "failed" else record.restart_at - record.failures[-1]

    waits = [await wait_after(up_for_s) for up_for_s in (0, 0, 60)]
    assert waits == pytest.approx([0.25, 0.5, 0.25])
    if counts_steady:  # the fourth death in the window, though all others were steady
        assert await wait_after(60) is None
    else:
        assert [await wait_after(s) for s in (60, 60, 60, 0, 0)] == pytest.approx(
            [0.25, 0.25, 0.25, 0.25, 0.5]
        )
        assert await wait_after(0) is None
    await launcher.stop("job", grace_s=0.2)


async def test_restart_when_the_clock_was_set_back_then_waits_no_longer(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    component, folder = python("a", SLEEPER), tmp_path / "job/procs"
    (status,) = await launcher.reconcile("job", [component])
    assert status.pid
    os.kill(status.pid, signal.SIGKILL)
    await until(launcher, component, lambda s: s.state == "restarting")
    record = load_record(folder, "a")
    assert record
    record.restart_at = time.time() + 3600.0
    record.save(folder)
    (status,) = await launcher.reconcile("job", [component])
    assert (status.state, status.restarts) == ("running", 1)


async def test_exit_0_without_restarts_is_left_alone(launcher: LocalLauncher) -> None:
    component = python("a", "pass", restarts=False)
    status = await until(launcher, component, lambda s: s.state == "exited")
    assert (status.exit_code, status.restarts) == (0, 0)


async def test_exit_0_with_restarts_starts_afresh(launcher: LocalLauncher) -> None:
    status = await until(launcher, python("a", "pass"), lambda s: s.restarts >= 1)
    assert status.restarts >= 1


async def test_undesired_component_is_stopped(launcher: LocalLauncher) -> None:
    started = await launcher.reconcile("job", [python("a", SLEEPER), python("b", SLEEPER)])
    left = await launcher.reconcile("job", [python("b", SLEEPER)])
    assert [s.name for s in left] == ["b"]
    assert not is_alive(started[0].pid or 0)
    assert is_alive(started[1].pid or 0)


async def test_changed_environment_starts_a_new_process(launcher: LocalLauncher) -> None:
    (old,) = await launcher.reconcile("job", [python("a", SLEEPER, PORT="1")])
    (new,) = await launcher.reconcile("job", [python("a", SLEEPER, PORT="2")])
    assert old.pid != new.pid
    assert not is_alive(old.pid or 0)


async def test_stop_kills_what_ignores_sigterm(launcher: LocalLauncher, tmp_path: Path) -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN);" + SLEEPER
    (status,) = await launcher.reconcile("job", [python("a", code)])
    await says(tmp_path / "job/logs/a.log", "up")
    await launcher.stop("job", grace_s=0.1)
    assert not is_alive(status.pid or 0)
    assert not list((tmp_path / "job/procs").glob("*.json"))


async def test_stop_ends_the_whole_process_group(launcher: LocalLauncher, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    await launcher.reconcile("job", [python("a", code)])
    log = tmp_path / "job/logs/a.log"
    await says(log, "\n")
    child = int(log.read_text().split()[0])
    await launcher.stop("job", grace_s=5)
    # The rest of a group is sent SIGKILL, and dies when the kernel next runs it.
    async with asyncio.timeout(30):
        while is_alive(child):  # noqa: ASYNC110 (the kernel tells nobody)
            await asyncio.sleep(0.005)
    assert not is_alive(child)


async def test_reused_pid_is_never_signalled(launcher: LocalLauncher, tmp_path: Path) -> None:
    (bystander,) = await LocalLauncher(tmp_path).reconcile("other", [python("x", SLEEPER)])
    component = python("a", SLEEPER)
    (status,) = await launcher.reconcile("job", [component])
    path = tmp_path / "job/procs/a.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pid": bystander.pid, "ticks": 1}))
    await launcher.stop("job", grace_s=0.1)
    assert is_alive(bystander.pid or 0)
    os.kill(status.pid or 0, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, status.pid or 0, 0)
    await LocalLauncher(tmp_path).stop("other", grace_s=0.1)


async def test_reconcile_when_cancelled_while_it_starts_a_process_then_stop_finds_it(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    start = launcher._start

    def slow_start(*args: Any) -> None:
        begun.set()
        may_go_on.wait(10)
        start(*args)

    monkeypatch.setattr(launcher, "_start", slow_start)
    reconciling = asyncio.create_task(launcher.reconcile("job", [python("a", SLEEPER)]))
    assert await asyncio.to_thread(begun.wait, 10)
    reconciling.cancel()
    stopping = asyncio.create_task(launcher.stop("job", grace_s=0.2))
    await asyncio.wait({stopping}, timeout=0.1)
    may_go_on.set()
    await asyncio.wait({stopping, reconciling}, timeout=10)
    assert reconciling.cancelled()
    assert stopping.done()
    log = tmp_path / "job" / "logs" / "a.log"
    assert log.is_file()
    assert not list((tmp_path / "job" / "procs").glob("*.json"))
