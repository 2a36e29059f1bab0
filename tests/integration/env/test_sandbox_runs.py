"""Real programs in the real sandbox: what they may do, what an Execution says, and its bounds."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox_here import own_cgroups, skip_or_fail

from troupe.errors import InvalidArgumentError, OverloadedError, UnavailableError
from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import Language, SandboxSettings

LANGUAGES = {
    "bash": Language(file="main.sh", argv=["/bin/bash", "main.sh"]),
    "node": Language(file="main.js", argv=["/usr/bin/node", "--single-threaded", "main.js"]),
    "missing": Language(file="main.x", argv=["/usr/bin/no-such-program", "main.x"]),
}


def opened(**settings: object) -> LocalSandbox:
    try:
        return open_sandbox(SandboxSettings(level="namespaces", **settings))  # type: ignore[arg-type]
    except InvalidArgumentError as error:
        skip_or_fail(error)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    made = opened(workers=2, languages=LANGUAGES)
    yield made
    made.close()


def run(sandbox: LocalSandbox, source: str, limits: Limits | None = None, **kwargs) -> Execution:
    return sandbox.run(Program(source, **kwargs), limits or Limits())


@pytest.mark.parametrize(
    ("source", "exit_code", "stdout", "stderr"),
    [
        ("print(input())", 0, "in\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('why')", 1, "", "why"),
        ("exit()", 0, "", ""),
        ("raise ValueError('x')", 1, "", "ValueError: x"),
        ("1 +", 1, "", "SyntaxError"),
        ("import os; os._exit(7)", 7, "", ""),
        ("import os; os.abort()", -signal.SIGABRT, "", ""),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "", ""),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, "", ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt"),
        ("print(__name__, __file__)", 0, "__main__ main.py\n", ""),
        ("import sys; print(sys.argv)", 0, "['main.py']\n", ""),
        ("print(2 ** 4000 % 97, 'é')", 0, f"{2**4000 % 97} é\n", ""),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n", ""),
        ("class A:\n def __del__(self): print('gone')\na = A()", 0, "gone\n", ""),
        ("import threading as t; t.Thread(target=print, args=('t',)).start()", 0, "t\n", ""),
        ("import asyncio; asyncio.run(asyncio.sleep(0)); print(1)", 0, "1\n", ""),
        ("import multiprocessing as m\nprint(m.Pool(2).map(abs, [-1]))", 0, "[1]\n", ""),
        ("import subprocess; print(subprocess.check_output(['echo', 'x']))", 0, "b'x\\n'\n", ""),
        ("print(open('/dev/stdin').read(), open(0).read())", 0, "in in\n", ""),
        ("import tempfile; print(tempfile.TemporaryFile().write(b'x'))", 0, "1\n", ""),
        ("import sqlite3, ssl, json, decimal, hashlib, zoneinfo; print(1)", 0, "1\n", ""),
        ("import os; print(os.getuid(), os.cpu_count() > 0)", 0, "1000 True\n", ""),
    ],
)  # fmt: skip
def test_python_when_run_then_as_the_interpreter_would(sandbox, source, exit_code, stdout, stderr):
    done = run(sandbox, source, stdin="in")
    assert (done.exit_code, done.stdout, done.limit) == (exit_code, stdout, None), done
    assert stderr in done.stderr
    assert "inside" not in done.stderr
    assert bool(done.stderr) == bool(stderr)


def test_files_when_given_then_lie_in_the_working_folder(sandbox):
    files = {"a.txt": "A", "sub/b.txt": "B", "helper.py": "x = 5"}
    source = "import helper\nprint(open('a.txt').read() + open('sub/b.txt').read(), helper.x)"
    assert run(sandbox, source, files=files).stdout == "AB 5\n"


def test_results_when_run_twice_then_equal(sandbox):
    source = "print(list({'a', 'b', 'c', 'd'}), hash('x'))"
    assert run(sandbox, source).stdout == run(sandbox, source).stdout


def test_random_when_not_seeded_then_differs_from_run_to_run(sandbox):
    source = "import random; print(random.getrandbits(64))"
    assert run(sandbox, source).stdout != run(sandbox, source).stdout


@pytest.mark.parametrize(
    ("source", "limits", "limit"),
    [
        ("while True: pass", Limits(wall_time_s=0.4), "wall_time"),
        ("while True: pass", Limits(wall_time_s=9, cpu_time_s=0.3), "cpu_time"),
        ("x = bytearray(b'x') * (1 << 28)", Limits(memory_bytes=64 << 20), "memory"),
        ("print('x' * 1001)", Limits(output_bytes=1000), "output"),
        ("import sys; sys.stderr.write('x' * 1001)", Limits(output_bytes=1000), "output"),
        ("open('f', 'w').write('x' * (3 << 20))", Limits(file_bytes=1 << 20), "file_size"),
        ("import os\nwhile True: os.fork()", Limits(num_processes=4), "pids"),
    ],
)
def test_limit_when_hit_then_named(sandbox, source, limits, limit):
    done = run(sandbox, source, limits)
    assert (done.limit, done.is_ok) == (limit, False), done
    assert len(done.stdout) <= limits.output_bytes


def test_limit_when_just_kept_then_none_is_named(sandbox):
    done = run(sandbox, "print('x' * 999)\nopen('f', 'w').write('x' * (1 << 20))",
               Limits(output_bytes=1000, file_bytes=1 << 20))  # fmt: skip
    assert (done.limit, done.exit_code, len(done.stdout)) == (None, 0, 1000)


def test_execution_when_it_used_time_and_memory_then_says_how_much(sandbox):
    done = run(sandbox, "import time; x = bytearray(b'x') * (50 << 20); time.sleep(0.2)")
    assert 0.2 <= done.wall_time_s < 5
    assert 50 << 20 <= done.peak_memory_bytes < 120 << 20


@pytest.mark.parametrize(
    ("language", "source", "program"),
    [
        ("bash", "read x; echo $((x + 1)); exit 3", "/bin/bash"),
        ("node", "console.log(Number(require('fs').readFileSync(0)) + 1); process.exit(3)",
         "/usr/bin/node"),
    ],
)  # fmt: skip
def test_language_when_configured_then_runs_in_the_same_isolation(
    sandbox, language, source, program
):
    if not Path(program).exists():
        pytest.skip(f"{program} is not installed")
    limits = Limits(memory_bytes=1 << 30, num_processes=32)
    done = run(sandbox, source, limits, language=language, stdin="41\n")
    assert (done.stdout, done.exit_code) == ("42\n", 3), done
    hostile = run(sandbox, "ls /proc /root/.ssh; touch /usr/x; unshare -Ur true && echo OUT",
                  language="bash")  # fmt: skip
    assert hostile.stdout == ""


def test_language_when_its_program_is_missing_then_the_run_fails_and_says_so(sandbox):
    done = run(sandbox, "x", language="missing")
    assert done.exit_code == 127
    assert "no-such-program" in done.stderr or "FileNotFoundError" in done.stderr


def test_worker_when_killed_in_a_run_then_retryable_error_and_the_next_run_is_well():
    sandbox = opened(workers=1)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(run, sandbox, "import time; time.sleep(60)", Limits(wall_time_s=60))
        before = sandbox.worker_pids[0]
        _until_busy(before)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(UnavailableError, match="replaced"):
            call.result(30)
    assert run(sandbox, "print(1)").stdout == "1\n"
    assert sandbox.worker_pids != [before]
    sandbox.close()


def _until_busy(pid: int) -> None:
    """A worker's process, below it the one that serves, its template and the cell, the program."""
    deadline = threading.Event()
    timer = threading.Timer(20, deadline.set)
    timer.start()
    while _depth(pid) < 3:
        assert not deadline.is_set(), "the program did not start"
    timer.cancel()


def _depth(pid: int) -> int:
    return max((1 + _depth(child) for child in _children(pid)), default=0)


def _children(pid: int) -> list[int]:
    """None of a process that is gone, such as the first one of the run before."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in text.split()]


def test_worker_when_it_ran_its_share_then_replaced():
    sandbox = opened(workers=1, runs_per_worker=3)
    first = sandbox.worker_pids
    for _ in range(4):
        assert run(sandbox, "print(1)").stdout == "1\n"
    assert sandbox.worker_pids != first
    sandbox.close()


def test_queue_when_full_then_overloaded_at_once_and_when_late_overloaded():
    sandbox = opened(workers=1, max_waiting=1, wait_s=0.3)
    with ThreadPoolExecutor(2) as threads:
        call = threads.submit(run, sandbox, "import time; time.sleep(1.5)")
        _until_busy(sandbox.worker_pids[0])
        waiting = threads.submit(run, sandbox, "print(1)")
        with pytest.raises(OverloadedError, match="TROUPE_ENV_SANDBOX_WORKERS"):
            waiting.result(10)
        assert call.result(10).is_ok
    sandbox.close()
    none_may_wait = opened(workers=1, max_waiting=0)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(run, none_may_wait, "import time; time.sleep(1)")
        _until_busy(none_may_wait.worker_pids[0])
        with pytest.raises(OverloadedError, match="TROUPE_ENV_SANDBOX_MAX_WAITING"):
            run(none_may_wait, "print(1)")
        assert call.result(10).is_ok
    none_may_wait.close()


def test_sandbox_when_closed_then_running_programs_end_and_nothing_is_left():
    before = own_cgroups()
    sandbox = opened(workers=1)
    pid = sandbox.worker_pids[0]
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(run, sandbox, "import time; time.sleep(60)", Limits(wall_time_s=60))
        _until_busy(pid)
        sandbox.close()
        with pytest.raises(UnavailableError):
            call.result(10)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(UnavailableError, match="closed"):
        run(sandbox, "print(1)")
    assert own_cgroups() == before


def test_queue_when_callers_come_back_at_once_then_no_one_waits_behind_them():
    sandbox = opened(workers=1, wait_s=20.0)
    order: list[str] = []

    def keep_calling(name: str) -> None:
        for _ in range(6):
            run(sandbox, "import time; time.sleep(0.05)")
            order.append(name)

    with ThreadPoolExecutor(3) as threads:
        for call in [threads.submit(keep_calling, name) for name in "abc"]:
            call.result(60)
    sandbox.close()
    rounds = [order[start : start + 3] for start in range(3, 15, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds), order
