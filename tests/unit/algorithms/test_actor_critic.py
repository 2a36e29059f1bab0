"""GAE by hand, and what IPPO and MAPPO make of it."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.algorithms.gae import gae
from troupe.algorithms.ppo import Ippo, Mappo
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError
from troupe_trainer.learn.credit import penalised

numbers = st.floats(-3, 3)


def spec(**changes: Any) -> AlgorithmSpec:
    critic = changes.pop("critic", {})
    return AlgorithmSpec.model_validate({"critic": critic, **changes})


def test_gae_when_worked_by_hand_then_sums_discounted_errors() -> None:
    # delta_1 = 1 - 0.5 = 0.5; delta_0 = 0 + 0.9 * 0.5 - 0.2 = 0.25;
    # A_0 = 0.25 + 0.9 * 0.5 * 0.5 = 0.475
    assert gae([0.0, 1.0], [0.2, 0.5], 0.9, 0.5) == pytest.approx([0.475, 0.5])


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.floats(0.1, 1.0))
def test_gae_at_its_ends_then_is_one_step_td_or_the_return_minus_the_value(
    turns: list[tuple[float, float]], gamma: float
) -> None:
    rewards, values = [r for r, _ in turns], [v for _, v in turns]
    following = [*values[1:], 0.0]
    td = [r + gamma * n - v for r, n, v in zip(rewards, following, values, strict=True)]
    assert gae(rewards, values, gamma, 0.0) == pytest.approx(td)
    count = len(rewards)
    returns = [
        math.fsum(gamma ** (s - t) * rewards[s] for s in range(t, count)) for t in range(count)
    ]
    left = [ret - value for ret, value in zip(returns, values, strict=True)]
    assert gae(rewards, values, gamma, 1.0) == pytest.approx(left, abs=1e-9)


def _group(*members: tuple[int, int, float, float]) -> GroupOutcome:
    """Members are (trajectory, turn, reward, value)."""
    found = [
        Sample(i, reward, 3, False, trajectory=trajectory, turn=turn, value=value)
        for i, (trajectory, turn, reward, value) in enumerate(members)
    ]
    return GroupOutcome("g", "planner", 0, found)


def test_ippo_when_trajectories_are_mixed_then_each_is_estimated_over_its_own_turns() -> None:
    algorithm = Ippo(spec(critic={"gamma": 0.9, "gae_lambda": 0.5}, scale="none"))
    group = _group((1, 0, 1.0, 0.4), (0, 1, 1.0, 0.5), (0, 0, 0.0, 0.2))
    found = algorithm.advantages(group)
    assert found == pytest.approx([0.6, 0.5, 0.475])
    assert algorithm.across_groups([group], [found]) == [found]


def test_ippo_when_not_told_otherwise_then_the_steps_advantages_are_whitened() -> None:
    algorithm = Ippo(spec())
    groups = [_group((0, 0, 0.0, 0.0)), _group((0, 0, 2.0, 0.0))]
    (low,), (high,) = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    assert (low, high) == pytest.approx((-(0.5**0.5), 0.5**0.5), abs=1e-5)


def test_critics_when_asked_for_then_read_the_own_prompt_or_what_all_see() -> None:
    own, joint = Ippo(spec()), Mappo(spec())
    assert (own.needs.values, joint.needs.values) == ("own", "joint")
    assert (own.sampler().sees_jointly, joint.sampler().sees_jointly) == (False, True)
    assert own.sampler().grouping == joint.sampler().grouping == "turns"


@pytest.mark.parametrize("kind", [Ippo, Mappo])
def test_actor_critic_without_a_critic_then_is_refused_by_name(kind: type[Ippo]) -> None:
    with pytest.raises(SpecInvalidError, match="/algorithm/critic: 'ppo' needs a critic"):
        kind(AlgorithmSpec(kind="ppo"))


def test_mappo_with_a_head_then_is_refused() -> None:
    with pytest.raises(SpecInvalidError, match="critic/kind"):
        Mappo(spec(critic={"kind": "head"}))


@pytest.mark.parametrize(
    ("kind", "critic", "field"),
    [
        (Ippo, {"kind": "head", "model": "models/large"}, "model"),
        (Ippo, {"kind": "head", "train": {"kind": "full"}}, "train"),
        (Ippo, {"kind": "head", "train": {"kind": "lora", "rank": 4}}, "train"),
        (Ippo, {"train": {"kind": "lora", "vision": True}}, "train/vision"),
        (Mappo, {"train": {"kind": "full", "vision": True}}, "train/vision"),
        (Ippo, {"max_tokens": 64}, "max_tokens"),
    ],
)
def test_critic_when_a_setting_would_be_ignored_then_is_refused_by_its_pointer(
    kind: type[Ippo], critic: dict[str, Any], field: str
) -> None:
    with pytest.raises(SpecInvalidError) as refusal:
        kind(spec(critic=critic))
    assert [issue.pointer for issue in refusal.value.issues] == [f"/algorithm/critic/{field}"]


@pytest.mark.parametrize(
    ("kind", "critic"), [(Ippo, {"kind": "head"}), (Mappo, {"max_tokens": 64, "model": "m"})]
)
def test_critic_when_its_spec_was_written_out_and_read_again_then_is_taken(
    kind: type[Ippo], critic: dict[str, Any]
) -> None:
    written = spec(critic=critic).model_dump_json()
    kind(AlgorithmSpec.model_validate_json(written))


def test_penalised_when_rewards_are_turns_then_each_turn_loses_its_own_kl() -> None:
    group = _group((0, 0, 1.0, 0.0), (0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0))
    got = penalised(group, [0.1, 0.2, 0.3], coef=1.0, by_trajectory=False)
    assert [c.reward for c in got.candidates] == pytest.approx([0.9, 0.8, 0.7])
