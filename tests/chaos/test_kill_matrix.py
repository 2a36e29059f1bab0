"""Every process at every moment, drains, zombies and pairs. Run by `make chaos`."""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import MATRIX, Case
from chaos_world import ChaosWorld

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: case.id)
def test_job_when_hit_anywhere_then_ends_as_if_nothing_happened(
    world: ChaosWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert world.run(case, chaos_spec, undisturbed).faults == []
