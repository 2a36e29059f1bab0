from typing import Any

import pytest

from troupe.episodes.build import load_parts
from troupe.samplers.cost import draws_per_act
from troupe.spec import parse_spec


@pytest.mark.parametrize(
    ("algorithm", "draws"),
    [
        ({"kind": "at_grpo"}, 4),
        ({"kind": "grpo"}, 4),
        ({"kind": "at_grpo", "redraws": 2}, 12),
        ({"kind": "remax"}, 5),
        # 1 + 4 + 16 nodes of 4 candidates over 3 turns; crossed, 1 + 4 + 16 of 2.
        ({"kind": "magrpo", "joint": {}}, 28),
        ({"kind": "magrpo", "joint": {"mode": "cross"}, "group_size": 2}, 14),
    ],
)
def test_draws_when_worked_by_hand_then_count_all_that_may_be_drawn(
    algorithm: dict[str, Any], draws: int
) -> None:
    spec = parse_spec(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"kind": "simultaneous", "order": ["tool", "planner"], "max_turns": 3},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
            "algorithm": {"group_size": 4, **algorithm},
        }
    )
    assert draws_per_act(load_parts(spec).algorithm.sampler(), spec) == draws
