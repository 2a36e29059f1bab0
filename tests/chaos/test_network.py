"""The network between two rooms: partitions, dead connections, resets, delay. `make chaos`."""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import NETWORK, Case
from wired_world import WiredWorld

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("case", NETWORK, ids=lambda case: case.id)
def test_job_when_the_network_fails_then_ends_as_if_nothing_happened(
    wired: WiredWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert wired.run(case, chaos_spec, undisturbed).faults == []
