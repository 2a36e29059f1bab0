"""Redis fails over to a replica, or loses writes, while a job runs. Run by `make chaos`."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import FAILOVERS, LOSSY, LOST_WRITES, Case
from failover_world import FailoverWorld
from lost_writes_world import LostWritesWorld
from platform_world import run_platform
from process_tree import descendants
from wired_world import Valkey, run_wired

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]
LIMITS = {"step_timeout_s": 60.0, "generate_timeout_s": 10.0, "max_attempts": 3}
"""A job that lost its ledger ends soon."""


@pytest.fixture(scope="module")
def failing_over(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    results: Path | None,
) -> Iterator[FailoverWorld]:
    """A platform behind the proxy, on a server that may be replaced."""
    _ = undisturbed
    base, faults = tmp_path_factory.mktemp("servers"), tmp_path_factory.mktemp("failover-faults")
    numbers = itertools.count()
    servers: list[Valkey] = []

    def make() -> Valkey:
        servers.append(Valkey(free_port(), base / f"valkey-{next(numbers)}"))
        return servers[-1]

    first = make()
    first.start()
    elders = frozenset(descendants(os.getpid()))
    more = {"TROUPE_FAULTS_DIR": str(faults)}
    folder = tmp_path_factory.mktemp("failing-over")
    try:
        with run_wired(folder, free_port, first, more) as (platform, wire):
            world = FailoverWorld(platform, faults, results, elders, wire)
            world.valkey, world.make_valkey = first, make
            yield world
    finally:
        for server in servers:
            server.stop()


@pytest.mark.parametrize("case", FAILOVERS, ids=lambda case: case.id)
def test_job_when_redis_fails_over_then_goes_on_or_ends_with_a_reason(
    failing_over: FailoverWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    spec = {**chaos_spec, "limits": LIMITS} if case.how == LOSSY else chaos_spec
    assert failing_over.run(case, spec, undisturbed).faults == []


@pytest.fixture(scope="module")
def losing_writes(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    results: Path | None,
) -> Iterator[LostWritesWorld]:
    """A platform on a server of the tests' own."""
    _ = undisturbed
    valkey = Valkey(free_port(), tmp_path_factory.mktemp("forgetful"))
    valkey.start()
    elders = frozenset(descendants(os.getpid()))
    faults = tmp_path_factory.mktemp("lost-writes-faults")
    more = {
        "TROUPE_FAULTS_DIR": str(faults),
        "TROUPE_REDIS_URL": f"redis://127.0.0.1:{valkey.port}/0",
    }
    try:
        with run_platform(tmp_path_factory.mktemp("losing-writes"), free_port, more) as platform:
            world = LostWritesWorld(platform, faults, results, elders)
            world.valkey = valkey
            yield world
    finally:
        valkey.stop()


@pytest.mark.parametrize("case", LOST_WRITES, ids=lambda case: case.id)
def test_job_when_redis_loses_answered_writes_then_it_or_its_resumption_ends_equal(
    losing_writes: LostWritesWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    spec = {**chaos_spec, "limits": {"step_timeout_s": LIMITS["step_timeout_s"]}}
    assert losing_writes.run(case, spec, undisturbed).faults == []
