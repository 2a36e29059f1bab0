"""A job whose agents see, hit in mid-step, ends with the weights of one that nothing hit."""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import BY_NAME, Case
from chaos_world import ChaosWorld
from image_world import TEAM, TEAM_PARAMS, make_seeing_base, team_that_sees

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def test_job_when_the_team_sees_and_the_trainer_is_killed_in_mid_step_then_has_the_same_weights(
    world: ChaosWorld, chaos_spec: dict[str, Any], tmp_path: Path
) -> None:
    base = make_seeing_base(tmp_path / "base", TEAM, TEAM_PARAMS)
    spec = team_that_sees(chaos_spec, base)
    undisturbed = world.run_alone(spec)

    outcome = world.run(Case("trainer", BY_NAME["mid-learn"]), spec, undisturbed)

    assert outcome.faults == []
