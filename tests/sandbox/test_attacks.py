"""The attack suite (``make test-sandbox``): every attack is contained and leaves no trace."""

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import canaries
import pytest
from attacks import ALL, FILES, Attack
from watched_host import EXPECTED, TALLY, WatchedHost

from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings


def left_folders() -> set[Path]:
    """Folders of programs whose sandbox has ended; other processes may have sandboxes open."""
    folders = Path("/tmp").glob("troupe-run-*")
    ended = [path for path in folders if not Path(f"/proc/{path.name.split('-')[2]}").exists()]
    return {path for path in ended if path.exists()}


BEFORE = left_folders()


def carry_out(attack: Attack, sandbox: LocalSandbox, names: dict[str, str]) -> Execution:
    source = attack.source
    for name, value in names.items():
        source = source.replace(f"@{name}@", value)
    if not attack.is_after_canaries:
        return sandbox.run(Program(source), attack.limits)
    canaries.plant(sandbox, 1)  # by the same worker: the one that was free last
    return sandbox.run(Program(source, stdin=canaries.CONTROL), attack.limits)


@pytest.mark.parametrize("attack", ALL, ids=[a.name.replace(" ", "-") for a in ALL])
def test_attack_when_carried_out_then_contained(
    attack: Attack, sandbox: LocalSandbox, watched_host: WatchedHost
):
    TALLY[attack.name] = False
    done = carry_out(attack, sandbox, watched_host.names)
    assert "ESCAPED" not in done.stdout, done.stdout
    assert "SyntaxError" not in done.stderr, done.stderr
    assert watched_host.complaints() == []
    TALLY[attack.name] = True
    if attack.limits_hit:
        assert done.limit in attack.limits_hit, done
    assert len(done.stdout) <= attack.limits.output_bytes
    # Ending it may take long: out of memory, Linux may need two seconds for each process it kills.
    assert done.wall_time_s < attack.limits.wall_time_s + 30
    honest = sandbox.run(Program("print(sum(map(int, input().split())))", stdin="40 2"), Limits())
    assert (honest.stdout, honest.stderr, honest.exit_code, honest.limit) == ("42\n", "", 0, None)


def test_host_when_all_attacks_are_over_then_honest_runs_are_unaffected_and_nothing_is_left(
    sandbox: LocalSandbox, watched_host: WatchedHost, request: pytest.FixtureRequest
):
    assert EXPECTED not in watched_host.names.values()
    num_runs = 1000 if request.config.getoption("--sandbox-full", default=False) else 60
    program = "import random, sys\nn = int(input())\nprint(n * n, file=sys.stderr)\nprint(n + 1)"

    def honest(n: int) -> tuple[str, str, int, str | None]:
        done = sandbox.run(Program(program, stdin=f"{n}\n"), Limits())
        return done.stdout, done.stderr, done.exit_code, done.limit

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(honest, range(num_runs)))
    assert found == [(f"{n + 1}\n", f"{n * n}\n", 0, None) for n in range(num_runs)]
    assert watched_host.complaints() == []
    # Each worker is a waiting process and, below it, the one that serves and its template.
    # A run's own first process may still be on its way out when its answer is there.
    deadline = time.monotonic() + 5
    while len(left := descendants(sandbox.worker_pids)) > 2 * sandbox.num_workers:
        assert time.monotonic() < deadline, left
    assert len(left) == 2 * len(sandbox.worker_pids) == 2 * sandbox.num_workers
    assert left_folders() <= BEFORE


def test_attacks_when_there_is_no_isolation_then_they_say_so(watched_host: WatchedHost):
    """The suite can fail: at a level that does not isolate, the same programs reach the host."""
    opened = open_sandbox(
        SandboxSettings(level="process", workers=1, python="/usr/bin/python3")
        if os.geteuid() == 0
        else SandboxSettings(level="process", workers=1)
    )
    try:
        names = {"secrets by /proc", "reads accounts", "devices", "sysfs, cgroups and sysctl"}
        tries = [a for a in FILES if a.name in names]
        assert len(tries) == len(names)
        for attack in tries:
            assert "ESCAPED" in carry_out(attack, opened, watched_host.names).stdout, attack.name
    finally:
        opened.close()


def descendants(pids: list[int]) -> list[int]:
    below: list[int] = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # on its way out
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            below += [int(child) for child in text.split()]
    return below + descendants(below) if below else below
