"""Which coalitions are played, what they cost, and specs that are refused."""

from itertools import permutations
from random import Random
from typing import Any, ClassVar

import pytest

from troupe.episodes.build import load_parts
from troupe.samplers.coalition import (
    Coalition,
    CoalitionParams,
    CoalitionSampler,
    shapley_values,
)
from troupe.samplers.cost import draws_per_act
from troupe.spec import parse_spec
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import JobSpec


def spec_of(algorithm: dict[str, Any], **changes: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "t",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"], "max_turns": 2},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
        "algorithm": {"group_size": 4, **algorithm},
    }
    return parse_spec(document | changes)


def test_shapley_values_when_worked_by_hand_then_follow_the_definition() -> None:
    # The glove game: l has a left glove, r and s a right one each; a pair is worth 1.
    worth = {
        Coalition(team): float("l" in team and bool({"r", "s"} & set(team)))
        for team in ("", "l", "r", "s", "lr", "ls", "rs", "lrs")
    }
    values = shapley_values("lrs", worth)
    assert values == pytest.approx({"l": 2 / 3, "r": 1 / 6, "s": 1 / 6}, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shapley_values_when_any_game_then_equal_the_mean_over_orders(size: int) -> None:
    agents, rng = "abcd"[:size], Random(size)
    orders = list(permutations(agents))
    for _ in range(20):
        teams = sorted({tuple(sorted(order[:n])) for order in orders for n in range(size + 1)})
        worth = {Coalition(team): rng.gauss(0, 3) for team in teams}
        expected = dict.fromkeys(agents, 0.0)
        for order in orders:
            for place, agent in enumerate(order):
                joined = worth[Coalition(order[: place + 1])] - worth[Coalition(order[:place])]
                expected[agent] += joined / len(orders)
        assert shapley_values(agents, worth) == pytest.approx(expected, abs=1e-9)


def test_coalitions_when_listed_then_leave_out_the_whole_team() -> None:
    shapley = CoalitionSampler(2, "shapley", CoalitionParams())
    assert [sorted(c) for c in shapley.coalitions("ab")] == [[], ["a"], ["b"]]
    assert len(shapley.coalitions("abcd")) == 15
    absence = CoalitionSampler(2, "counterfactual", CoalitionParams())
    assert [sorted(c) for c in absence.coalitions("abc")] == [["b", "c"], ["a", "c"], ["a", "b"]]


@pytest.mark.parametrize(
    ("algorithm", "draws"),
    [
        # Each of 4 episodes, and again by {}, {tool} and {planner}.
        ({"kind": "shapley"}, 16),
        ({"kind": "ccpo"}, 12),
        ({"kind": "ccpo", "params": {"others": "repeat"}}, 4),
        ({"kind": "shapley", "redraws": 1}, 32),
    ],
)
def test_draws_when_worked_by_hand_then_count_the_replays(
    algorithm: dict[str, Any], draws: int
) -> None:
    spec = spec_of(algorithm)
    assert draws_per_act(load_parts(spec).algorithm.sampler(), spec) == draws


class FiveSeats:
    """As much of a task family as loading a spec reads."""

    name, agents = "seats", [f"solver_{i}" for i in range(5)]
    local_terms: ClassVar[dict[str, Any]] = {agent: {} for agent in agents}


FAMILY: Any = FiveSeats()
FIVE: dict[str, Any] = {
    "workflow": {"order": FAMILY.agents, "max_turns": 1},
    "agents": {name: {"policy": "p"} for name in FAMILY.agents},
}


def refused(spec: JobSpec) -> str:
    with pytest.raises(SpecInvalidError) as refusal:
        load_parts(spec)
    return str(refusal.value)


def test_spec_when_a_default_is_of_nobody_then_is_refused_with_the_nearest_name() -> None:
    spec = spec_of({"kind": "shapley", "params": {"default_actions": {"planer": "x"}}})
    assert "/algorithm/params/default_actions/planer" in refused(spec)
    assert "planner" in refused(spec)


def test_spec_when_a_team_is_too_large_then_is_refused_and_names_ccpo() -> None:
    with pytest.raises(SpecInvalidError, match=r"(?s)/algorithm/kind.*at most 4 agents; use ccpo"):
        load_parts(spec_of({"kind": "shapley"}, **FIVE), FAMILY)
    load_parts(spec_of({"kind": "ccpo"}, **FIVE), FAMILY)


def test_spec_when_replays_are_too_many_then_is_refused() -> None:
    load_parts(spec_of({"kind": "shapley", "group_size": 1024, "redraws": 0}))
    with pytest.raises(SpecInvalidError, match=r"/algorithm/group_size.* 5120 times.*4096"):
        load_parts(spec_of({"kind": "ccpo", "group_size": 1024}, **FIVE), FAMILY)


@pytest.mark.parametrize(
    ("reward", "pointer"),
    [
        ({"alpha": 0.0}, "/reward/alpha"),
        ({"kind": "algorithm_world:moved_closer", "mode": "replace"}, "/reward/mode"),
    ],
)
def test_spec_when_the_teams_reward_counts_nothing_then_is_refused(
    reward: dict[str, Any], pointer: str
) -> None:
    assert pointer in refused(spec_of({"kind": "ccpo"}, reward=reward))


def test_params_when_misspelt_then_are_refused() -> None:
    with pytest.raises(SpecInvalidError, match="/algorithm/params/other"):
        load_parts(spec_of({"kind": "shapley", "params": {"other": "react"}}))
    with pytest.raises(SpecInvalidError, match="/algorithm/params/credit_weight"):
        load_parts(spec_of({"kind": "ccpo", "params": {"credit_weight": 0.0}}))
