"""Role-conditioned advantages on returns that can be followed by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.algorithms.role_conditioned import RoleConditioned
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec

SPIRAL = RoleConditioned(AlgorithmSpec(kind="role_conditioned", group_size=2))


def group(agent: str, *returns: tuple[int, float]) -> GroupOutcome:
    """Candidates of (trajectory, its return), in index order."""
    found = [
        Sample(index=i, reward=r, num_tokens=3, is_truncated=False, trajectory=t)
        for i, (t, r) in enumerate(returns)
    ]
    return GroupOutcome("g", agent, 0, found)


def step(*groups: GroupOutcome, algorithm: RoleConditioned = SPIRAL) -> list[list[float]]:
    """The advantages of one step, as the trainer computes them."""
    return algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])


def test_win_draw_and_loss_then_each_is_compared_with_the_mean_of_the_others() -> None:
    # 1 - (0 - 1) / 2 = 1.5; 0 - (1 - 1) / 2 = 0; -1 - (1 + 0) / 2 = -1.5.
    assert step(group("x", (0, 1.0), (1, 0.0), (2, -1.0))) == [[1.5, 0.0, -1.5]]


def test_baseline_when_an_agent_has_games_of_several_tasks_then_spans_them() -> None:
    # x returned 1, 1 and -1, in two tasks: 1 - 0 = 1 and -1 - 1 = -2.
    assert step(group("x", (0, 1.0), (1, 1.0)), group("x", (0, -1.0))) == [[1.0, 1.0], [-2.0]]


def test_baseline_when_seats_differ_in_luck_then_each_is_held_against_itself() -> None:
    # x wins three of four, o one of four: an even game for neither, but the norm for both.
    first, second = step(
        group("x", (0, 1.0), (1, 1.0), (2, 1.0), (3, -1.0)),
        group("o", (0, -1.0), (1, -1.0), (2, -1.0), (3, 1.0)),
    )
    assert first == pytest.approx([2 / 3, 2 / 3, 2 / 3, -2.0])
    assert second == pytest.approx([-2 / 3, -2 / 3, -2 / 3, 2.0])


def test_turns_of_one_trajectory_then_share_its_advantage_and_count_once() -> None:
    # Two turns of trajectory 0 and one of trajectory 1: the baseline of each is the other.
    assert step(group("x", (0, 1.0), (0, 1.0), (1, -1.0))) == [[2.0, 2.0, -2.0]]


def test_equal_returns_or_a_lone_trajectory_then_teach_nothing() -> None:
    assert step(group("x", (0, -1.0), (1, -1.0)), group("x", (0, -1.0))) == [[0.0, 0.0], [0.0]]
    assert step(group("x", (4, 1.0), (4, 1.0)), group("o", (4, -1.0))) == [[0.0, 0.0], [0.0]]


def test_scale_std_when_asked_for_then_divides_by_the_roles_sample_deviation() -> None:
    scaled = RoleConditioned(AlgorithmSpec(kind="role_conditioned", group_size=2, scale="std"))
    # Returns 2, 0, -2 deviate by 2 (divisor n - 1).
    found = step(group("x", (0, 2.0), (1, 0.0), (2, -2.0)), algorithm=scaled)
    assert found[0] == pytest.approx([1.5, 0.0, -1.5], rel=1e-5)


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(-5, 5))
def test_luck_of_a_role_when_added_to_all_its_returns_then_changes_nothing(
    returns: list[float], luck: float
) -> None:
    plain = step(group("x", *enumerate(returns)))[0]
    shifted = step(group("x", *enumerate(r + luck for r in returns)))[0]
    assert shifted == pytest.approx(plain, abs=1e-6)
    assert sum(plain) == pytest.approx(0.0, abs=1e-6)


def test_sampler_then_plays_whole_games_and_groups_by_task_and_agent() -> None:
    sampler = SPIRAL.sampler()
    assert (sampler.num_trajectories, sampler.num_candidates, sampler.grouping) == (2, 1, "task")
