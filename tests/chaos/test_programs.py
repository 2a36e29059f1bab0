"""An env service or a router dies while an agent program runs: the same groups, the same weights.

Each program is a process below the env service that its death must end; the rest of the episode is
played by a program that is answered from the record. All moments: `make chaos`.
"""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import PROGRAMS, QUICK_PROGRAMS, Case
from chaos_world import ChaosWorld

pytestmark = pytest.mark.timeout(1200)

TEAM = Path(__file__).parents[2] / "examples" / "programs" / "toy"


@pytest.fixture(scope="module")
def program_spec(chaos_spec: dict[str, Any]) -> dict[str, Any]:
    """Two agents of a program of the standard library, six calls an episode at most."""
    policy = {"policy": "shared"}
    return {
        **chaos_spec,
        "name": "agent-program",
        "tasks_per_step": 3,
        "task": {
            "name": "program",
            "params": {
                "program": "team:run",
                "folder": str(TEAM),
                "judge": {"name": "plan_path", "params": {"size": 4}, "agent": "planner"},
                "seats": {
                    "solver": {"system": "You are the solver", "judged": True},
                    "verifier": {"system": "You are the verifier"},
                },
                "max_calls": 8,
            },
        },
        "workflow": {"kind": "self_play", "order": ["solver", "verifier"], "max_turns": 8},
        "agents": {"solver": policy, "verifier": policy},
        "algorithm": {"kind": "at_grpo", "group_size": 3},
        "eval": {"num_tasks": 2},
    }


@pytest.fixture(scope="module")
def undisturbed_program(world: ChaosWorld, program_spec: dict[str, Any]) -> Path:
    return world.run_alone(program_spec)


@pytest.mark.chaos
@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.id)
def test_job_of_a_program_when_hit_in_its_middle_then_ends_as_if_nothing_happened(
    world: ChaosWorld, program_spec: dict[str, Any], undisturbed_program: Path, case: Case
):
    assert world.run(case, program_spec, undisturbed_program).faults == []


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("case", QUICK_PROGRAMS, ids=lambda case: case.id)
def test_program_when_its_env_service_or_router_dies_then_groups_and_weights_are_the_same(
    world: ChaosWorld, program_spec: dict[str, Any], undisturbed_program: Path, case: Case
):
    outcome = world.run(case, program_spec, undisturbed_program)
    assert outcome.faults == []
    assert outcome.num_groups > 0
    assert outcome.same_weights
