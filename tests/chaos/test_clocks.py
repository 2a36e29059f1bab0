"""A clock that is set by an hour while a job runs. Run by `make chaos`; needs libfaketime."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import CLOCKS, Case
from clock_world import ClockWorld, find_library
from platform_world import run_platform
from process_tree import descendants

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not find_library(), reason="no libfaketime: install the package faketime"),
]


@pytest.fixture(scope="module")
def clocked(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    results: Path | None,
) -> Iterator[ClockWorld]:
    """A platform of its own, whose processes have clocks of their own."""
    _ = undisturbed
    elders = frozenset(descendants(os.getpid()))
    clocks, faults = tmp_path_factory.mktemp("clocks"), tmp_path_factory.mktemp("clock-faults")
    more = {
        "CHAOS_CLOCKS": str(clocks),
        "CHAOS_FAKETIME": find_library(),
        "PYTHONPATH": str(Path(__file__).parent / "clock"),
        "TROUPE_FAULTS_DIR": str(faults),
    }
    for role in ("router", "rollout", "env", "trainer", "redis"):
        (clocks / role).write_text("+0\n")
    with run_platform(tmp_path_factory.mktemp("clocked"), free_port, more) as platform:
        world = ClockWorld(platform, faults, results, elders)
        world.clocks = clocks
        yield world


@pytest.mark.parametrize("case", CLOCKS, ids=lambda case: case.id)
def test_job_when_a_clock_is_set_then_ends_as_if_nothing_happened(
    clocked: ClockWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert clocked.run(case, chaos_spec, undisturbed).faults == []
