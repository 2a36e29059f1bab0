"""The algorithm follow: advantages of siblings and of continuations, and its part of a spec."""

import pytest

from troupe.algorithms.follow import Follow
from troupe.algorithms.grpo import Grpo
from troupe.algorithms.load import load_algorithm
from troupe.candidates import GroupOutcome, Sample
from troupe.samplers.follow import FollowSampler
from troupe.spec import parse_spec
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError


def spec(**changes) -> AlgorithmSpec:
    return AlgorithmSpec.model_validate({"kind": "follow", **changes})


def siblings(*values: float) -> GroupOutcome:
    members = [Sample(i, value, 3, False, trajectory=0, turn=2) for i, value in enumerate(values)]
    return GroupOutcome("g", "designer", 2, members)


def test_advantages_when_siblings_then_are_values_against_their_mean() -> None:
    assert Follow(spec(scale="none")).advantages(siblings(1.5, 0.0, 0.0)) == [1.0, -0.5, -0.5]
    # The sample deviation of 1, 0, 2 is 1.
    assert Follow(spec()).advantages(siblings(1.0, 0.0, 2.0)) == pytest.approx(
        [0.0, -1.0, 1.0], abs=1e-5
    )


def test_advantages_when_acts_of_continuations_then_each_continuation_counts_once() -> None:
    # Continuation 1 has two acts and the return 1, continuation 2 one act and 0.
    members = [
        Sample(0, 1.0, 3, False, trajectory=1, turn=0),
        Sample(1, 1.0, 3, False, trajectory=1, turn=1),
        Sample(2, 0.0, 3, False, trajectory=2, turn=0),
    ]
    group = GroupOutcome("g", "executor", 0, members)
    assert Follow(spec(scale="none")).advantages(group) == [0.5, 0.5, -0.5]


def test_sampler_when_the_part_is_left_out_then_follows_all_twice() -> None:
    sampler = load_algorithm(spec(group_size=5)).sampler()
    assert isinstance(sampler, FollowSampler)
    assert (sampler.num_candidates, sampler.executions, sampler.goes_on) == (5, 2, "best")
    assert sampler.followed(("a", "b")) == ("a", "b")


@pytest.mark.parametrize(("goes_on", "chosen"), [("best", 1), ("random", 0), (False, 1)])
def test_sampler_when_given_its_part_then_chooses_as_it_says(goes_on, chosen: int) -> None:
    follow = {"agents": ["b"], "executions": 3, "goes_on": goes_on}
    sampler = load_algorithm(spec(follow=follow)).sampler()
    assert isinstance(sampler, FollowSampler)
    assert (sampler.executions, sampler.goes_on, sampler.followed(("a", "b"))) == (
        3,
        goes_on,
        ("b",),
    )
    assert sampler.choose([0.0, 1.0, 1.0]) == chosen


def test_part_when_another_algorithm_has_it_then_is_refused() -> None:
    with pytest.raises(SpecInvalidError, match=r"/algorithm/follow.*does not read this part"):
        Grpo(AlgorithmSpec.model_validate({"kind": "grpo", "follow": {}}))


@pytest.mark.parametrize("bad", [{"executions": 0}, {"goes_on": True}, {"goes_on": "worst"}])
def test_part_when_out_of_range_then_is_refused(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        spec(follow=bad)


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        (["solver", "nobody"], r"/algorithm/follow/agents/1.*no agent is called 'nobody'"),
        (["solver", "solver"], r"/algorithm/follow/agents.*named once"),
    ],
)
def test_agents_when_not_the_jobs_or_repeated_then_says_which(agents, message: str) -> None:
    with pytest.raises(SpecInvalidError, match=message):
        parse_spec(
            {
                "name": "t",
                "steps": 1,
                "task": {"name": "plan_path"},
                "workflow": {"kind": "self_play", "order": ["solver"]},
                "agents": {"solver": {"policy": "p"}},
                "policies": {"p": {"model": "m"}},
                "algorithm": {"kind": "follow", "follow": {"agents": agents}},
            }
        )
