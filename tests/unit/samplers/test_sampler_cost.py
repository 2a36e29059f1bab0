from typing import Any

import pytest

from troupe.algorithms.load import load_algorithm
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


@pytest.mark.parametrize(
    ("follow", "turns", "draws"),
    [
        # 3 followed acts of K = 4; of the 8 continuations of each, 2, 1 and 0 acts are left to the
        # agent. The other's 3 followed acts leave it up to 3: 12 + 24 + 72 = 108, 36 a turn.
        ({"executions": 2}, 3, 36),
        # The verifier acts up to 3 times in 8 continuations of the solver's 3 acts, and 3 alone.
        ({"executions": 2, "agents": ["solver"]}, 3, 25),
        # One followed act: 8 continuations of up to 3 acts of the verifier.
        ({"executions": 2, "agents": ["solver"], "goes_on": False}, 3, 8),
        ({"executions": 1}, 1, 8),
    ],
)
def test_followed_draws_when_worked_by_hand_then_count_spine_and_continuations(
    follow: dict[str, Any], turns: int, draws: int
) -> None:
    spec = parse_spec(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"kind": "self_play", "order": ["solver", "verifier"], "max_turns": turns},
            "agents": {"solver": {"policy": "p"}, "verifier": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
            "algorithm": {"kind": "follow", "group_size": 4, "follow": follow},
        }
    )
    assert draws_per_act(load_algorithm(spec.algorithm).sampler(), spec) == draws
