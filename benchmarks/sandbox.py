"""The sandbox's speed beside bare ``python -c``, bubblewrap, and PettingLLMs' kind of subprocess.

Run: ``python -m benchmarks.sandbox [--quick]``. The last line is one JSON object. On a machine with
other work compare the columns of one run: all were measured in turns.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.report import commit, goal, machine, percentile
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings

TRIVIAL = "print(int(input()) + 1)"
PYTHON = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
LIMITS = Limits()


def in_sandbox(sandbox: LocalSandbox) -> None:
    done = sandbox.run(Program(TRIVIAL, stdin="41"), LIMITS)
    assert done.stdout == "42\n", done


def bare() -> None:
    done = subprocess.run(
        [PYTHON, "-c", TRIVIAL], input=b"41", capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"42\n"


def bubblewrap() -> None:
    argv = [
        "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr",
        "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
        "--symlink", "usr/bin", "/bin", "--tmpfs", "/tmp", "--cap-drop", "ALL",
        "/usr/bin/python3", "-c", TRIVIAL,
    ]  # fmt: skip
    done = subprocess.run(argv, input=b"41", capture_output=True, check=True, timeout=60)
    assert done.stdout == b"42\n"


def subprocess_pool_run() -> None:
    """A script in a folder of its own, a session of its own, the full environment, killpg."""
    folder = tempfile.mkdtemp(prefix="bench-run-")
    try:
        script = Path(folder, "script.py")
        script.write_text(TRIVIAL)
        process = subprocess.Popen(
            [PYTHON, str(script)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, env=dict(os.environ),
        )  # fmt: skip
        try:
            out, _ = process.communicate(b"41", timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert out == b"42\n"
    finally:
        shutil.rmtree(folder)


def in_turns(runs: dict[str, Callable[[], None]], n: int) -> dict[str, list[float]]:
    """Milliseconds of ``n`` executions of each, one of each in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(n):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) * 1000)
    return times


def at_once(run: Callable[[], None], num_threads: int, n: int) -> tuple[float, list[float]]:
    """Executions per second and each one's milliseconds, with ``num_threads`` callers."""

    left = iter(range(n))

    def caller() -> "array[float]":
        # Plain numbers: a future for each execution would be what grows in a long run.
        durations_ms = array("d")
        for _ in left:
            began = time.perf_counter()
            run()
            durations_ms.append((time.perf_counter() - began) * 1000)
        return durations_ms

    began = time.perf_counter()
    with ThreadPoolExecutor(num_threads) as threads:
        callers = [threads.submit(caller) for _ in range(num_threads)]
        times = [time_ms for called in callers for time_ms in called.result()]
    return n / (time.perf_counter() - began), times


def resident_bytes(pids: list[int]) -> int:
    """Memory of this process, the workers and all below them."""
    total, pending = 0, [os.getpid(), *pids]
    counted: set[int] = set()
    while pending:
        pid = pending.pop()
        if pid in counted:
            continue
        counted.add(pid)
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except OSError:
            continue
        total += pages * 4096
        pending += [int(child) for child in children.split()] if pid != os.getpid() else []
    return total


def num_below(pids: list[int]) -> int:
    """Processes below the workers: two each when nothing runs."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # on its way out
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            total += len(children) + num_below([int(child) for child in children])
    return total


def num_stray(pids: list[int], settle_s: float = 2.0) -> int:
    """Processes too many below idle workers, once the last run's first process is gone."""
    deadline = time.monotonic() + settle_s
    while (count := num_below(pids) - 2 * len(pids)) > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    return count


def endurance(sandbox: LocalSandbox, num_runs: int) -> dict[str, Any]:
    """Memory at the first tenth and at the end, and stray processes, over ``num_runs``."""
    threads = sandbox.num_workers
    rate, _ = at_once(lambda: in_sandbox(sandbox), threads, num_runs // 10)
    num_stray(sandbox.worker_pids)  # the last run's processes are no growth
    early = resident_bytes(sandbox.worker_pids)
    rate, _ = at_once(lambda: in_sandbox(sandbox), threads, num_runs - num_runs // 10)
    strays = num_stray(sandbox.worker_pids)
    late = resident_bytes(sandbox.worker_pids)
    return {
        "executions": num_runs,
        "executions_per_s": round(rate, 1),
        "memory_growth": round(late / early - 1, 3),
        "stray_processes": strays,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer executions")
    parser.add_argument("--executions", type=int, help="length of the endurance run")
    arguments = parser.parse_args()
    n = 60 if arguments.quick else 300
    sandbox = open_sandbox(SandboxSettings(level="namespaces"))
    runs = {
        "troupe": lambda: in_sandbox(sandbox),
        "python -c": bare,
        "subprocess pool": subprocess_pool_run,
    }
    if shutil.which("bwrap"):
        runs["bubblewrap"] = bubblewrap
    else:
        print("bubblewrap is not installed: skipped (apt install bubblewrap)")
    cores = os.cpu_count() or 1
    try:
        at_once(runs["troupe"], sandbox.num_workers, 10)
        alone = in_turns(runs, n)
        full = {name: at_once(run, cores, 4 * n) for name, run in runs.items()}
        lasted = endurance(sandbox, arguments.executions or (1_000 if arguments.quick else 100_000))
    finally:
        sandbox.close()
    print(json.dumps(report(n, cores, alone, full, lasted)))


def report(
    n: int,
    cores: int,
    alone: dict[str, list[float]],
    full: dict[str, tuple[float, list[float]]],
    lasted: dict[str, Any],
) -> dict[str, Any]:
    """The line that the benchmark ends with."""
    times = alone["troupe"]
    p50 = statistics.median(times)
    p99 = percentile(full["troupe"][1], 0.99)
    rate = full["troupe"][0] / cores
    return {
        "benchmark": "sandbox",
        "commit": commit(),
        "machine": machine(),
        "load": [round(x, 1) for x in os.getloadavg()],
        "spec": "trivial Python program, level namespaces",
        "n": n,
        "median": round(p50, 2),
        "spread": [round(min(times), 2), round(percentile(times, 0.9), 2)],
        "alone_p50_ms": {name: round(statistics.median(t), 2) for name, t in alone.items()},
        "alone_min_ms": {name: round(min(t), 2) for name, t in alone.items()},
        "full_per_s": {name: round(per_s, 1) for name, (per_s, _) in full.items()},
        "full_p99_ms": {name: round(percentile(t, 0.99), 1) for name, (_, t) in full.items()},
        "endurance": lasted,
        "goals": [
            goal("p50 of a trivial program, ms", round(p50, 2), 8.0, p50 <= 8.0),
            goal("executions/s per core", round(rate, 1), 100.0, rate >= 100.0),
            goal("p99 with the pool full, ms", round(p99, 1), 50.0, p99 <= 50.0),
            goal(
                "times as fast as python -c",
                ratio := round(statistics.median(alone["python -c"]) / p50, 2),
                1.0,
                ratio >= 1.0,
            ),
            goal(
                "memory growth over the endurance run",
                lasted["memory_growth"],
                0.1,
                lasted["memory_growth"] <= 0.1,
            ),
            goal("stray processes", lasted["stray_processes"], 0, lasted["stray_processes"] == 0),
        ],
    }


if __name__ == "__main__":
    main()
