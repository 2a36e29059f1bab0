"""Single packets that are lost. Run by `make chaos`, in a network namespace of its own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import LOSSES, Case
from lossy_world import LossyWorld, run_with_known_ports, why_not_here
from process_tree import descendants

MISSING = why_not_here()
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]


@pytest.fixture(scope="module")
def lossy(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    results: Path | None,
) -> Iterator[LossyWorld]:
    """A platform of its own, each of whose servers has a known port."""
    _ = undisturbed
    elders = frozenset(descendants(os.getpid()))
    faults = tmp_path_factory.mktemp("lossy-faults")
    folder, more = tmp_path_factory.mktemp("lossy"), {"TROUPE_FAULTS_DIR": str(faults)}
    with run_with_known_ports(folder, free_port, more) as (platform, ports):
        world = LossyWorld(platform, faults, results, elders)
        world.ports = ports
        yield world


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case.id)
def test_job_when_packets_are_lost_then_ends_as_if_nothing_happened(
    lossy: LossyWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert lossy.run(case, chaos_spec, undisturbed).faults == []
