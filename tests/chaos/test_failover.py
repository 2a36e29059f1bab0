"""Redis fails over to a replica while a job runs. Run by `make chaos`."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import CUT, FAILOVERS, LOSSY, Case
from failover_world import FailoverWorld
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
    spec = {**chaos_spec, "limits": LIMITS} if case.how in (LOSSY, CUT) else chaos_spec
    assert failing_over.run(case, spec, undisturbed).faults == []
