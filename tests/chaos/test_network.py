"""The network between two rooms: partitions, dead connections, resets, delay. `make chaos`."""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import HALF_OPEN, NETWORK, Case
from wired_world import WiredWorld

NOTICED_S = 45.0
"""A vanished peer is noticed after 20 s; gRPC's own time for a ping is 60 s."""
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("case", NETWORK, ids=lambda case: case.id)
def test_job_when_the_network_fails_then_ends_as_if_nothing_happened(
    wired: WiredWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    outcome = wired.run(case, chaos_spec, undisturbed)
    assert outcome.faults == []
    if case.how == HALF_OPEN:
        assert (outcome.serving_s or 0.0) < NOTICED_S
