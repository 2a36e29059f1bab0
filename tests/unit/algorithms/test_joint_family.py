"""The family that can draw joint actions: what each makes of the returns at one node."""

import pytest

from troupe.algorithms.magrpo import Magrpo
from troupe.algorithms.mareinforce import Mareinforce
from troupe.algorithms.maremax import Maremax
from troupe.algorithms.marloo import Marloo
from troupe.candidates import GroupOutcome, Sample
from troupe.samplers.joint import JointSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.spec.algorithm import AlgorithmSpec, JointSpec
from troupe.spec.issues import SpecInvalidError

FAMILY = (Magrpo, Mareinforce, Marloo, Maremax)


def node(*returns: float) -> GroupOutcome:
    """Candidates of one node: all in one trajectory, unlike those of parallel episodes."""
    members = [Sample(i, r, 3, False, trajectory=5) for i, r in enumerate(returns)]
    return GroupOutcome("g", "planner", 1, members, node="t/n0")


def spec(**changes) -> AlgorithmSpec:
    return AlgorithmSpec.model_validate({"joint": {}, **changes})


def test_magrpo_when_worked_by_hand_then_is_the_return_against_the_mean() -> None:
    assert Magrpo(spec()).advantages(node(1.0, 0.0, 2.0)) == [0.0, -1.0, 1.0]
    assert Magrpo(spec()).aggregation == "sequence_sum"


def test_magrpo_when_all_returns_are_equal_then_nothing_is_learnt() -> None:
    assert Magrpo(spec()).advantages(node(0.3, 0.3, 0.3)) == [0.0, 0.0, 0.0]


def test_family_when_joint_then_all_draw_the_same_tree() -> None:
    for kind in FAMILY:
        sampler = kind(spec(group_size=5, joint={"mode": "cross", "gamma": 0.5})).sampler()
        assert isinstance(sampler, JointSampler)
        assert (sampler.num_candidates, sampler.mode, sampler.gamma) == (5, "cross", 0.5)


def test_siblings_when_not_joint_then_play_whole_episodes() -> None:
    for kind in FAMILY[1:]:
        assert isinstance(kind(AlgorithmSpec(group_size=5)).sampler(), ParallelSampler)


@pytest.mark.parametrize("scale", ["none", "std"])
def test_family_when_joint_then_members_are_distinct_scaled_or_not(scale: str) -> None:
    # The sample deviation of 1, 0, 2 is 1, so both scales give these numbers.
    found = {
        kind.__name__: kind(spec(scale=scale)).advantages(node(1.0, 0.0, 2.0)) for kind in FAMILY
    }
    assert found["Magrpo"] == pytest.approx([0.0, -1.0, 1.0], abs=1e-5)
    assert found["Mareinforce"] == pytest.approx([1.0, 0.0, 2.0], abs=1e-5)
    assert found["Marloo"] == pytest.approx([0.0, -1.5, 1.5], abs=1e-5)
    assert found["Maremax"] == pytest.approx([-1.0, -2.0, 0.0], abs=1e-5)


def test_magrpo_without_its_part_then_says_what_to_add() -> None:
    with pytest.raises(SpecInvalidError, match=r"/algorithm/joint.*add `joint"):
        Magrpo(AlgorithmSpec(kind="magrpo"))


def test_joint_when_the_discount_is_out_of_range_then_is_refused() -> None:
    with pytest.raises(ValueError, match="gamma"):
        JointSpec(gamma=1.5)
