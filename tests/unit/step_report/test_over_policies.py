"""One number of several policies', by hand and for any split of them."""

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.runtime.step_report.trainer import TrainerPart, over_policies

ONE = TrainerPart(
    step=4,
    policy_version=5,
    staleness=0,
    staleness_mean=0.0,
    overlap_s=0.5,
    loss=1.0,
    kl_ref=None,
    ratio_max=1.5,
    parity_ratio=None,
    entropy=2.0,
    value_loss=0.5,
    by_policy={"one": {"loss": 1.0}},
    trained_reward_mean=0.0,
    reward_std=0.0,
    trained_reward_by_agent={"tool": 0.0},
    completion_tokens=10.0,
    groups_trained=1,
    groups_zero_variance=1,
    is_flat=False,
    groups_dropped={"late": 1},
    candidates_filtered=2,
    trained_tokens=30,
    peak_memory_bytes=None,
    trained_tokens_per_s=30.0,
    policy="one",
    counts={"groups": 1, "candidates": 3, "advantages": 3},
    phases={"learn": 1.0, "publish": 3.0},
    extra={"style": 1.0},
)
TWO = TrainerPart(
    step=4,
    policy_version=5,
    staleness=2,
    staleness_mean=2.0,
    overlap_s=0.25,
    loss=2.0,
    kl_ref=0.5,
    ratio_max=1.25,
    entropy=4.0,
    value_loss=1.5,
    by_policy={"two": {"loss": 2.0}},
    trained_reward_mean=1.0,
    reward_std=0.0,
    trained_reward_by_agent={"planner": 1.0},
    completion_tokens=30.0,
    groups_trained=2,
    groups_zero_variance=0,
    is_flat=True,
    groups_dropped={"late": 2, "foreign": 1},
    candidates_filtered=0,
    trained_tokens=10,
    peak_memory_bytes=7,
    trained_tokens_per_s=5.0,
    policy="two",
    counts={"groups": 3, "candidates": 1, "advantages": 1},
    phases={"learn": 2.0},
    extra={"style": 5.0},
)


def test_over_policies_when_worked_by_hand_then_each_number_is_reduced_in_its_own_way() -> None:
    whole = over_policies([ONE, TWO])
    assert whole.loss == pytest.approx((30 * 1 + 10 * 2) / 40)
    assert whole.entropy == pytest.approx((30 * 2 + 10 * 4) / 40)
    assert whole.value_loss == pytest.approx((30 * 0.5 + 10 * 1.5) / 40)
    assert whole.kl_ref == 0.5  # only of the policy that has one
    assert (whole.ratio_max, whole.parity_ratio) == (1.5, None)
    assert whole.staleness == 2
    assert whole.staleness_mean == pytest.approx((1 * 0 + 3 * 2) / 4)
    assert whole.trained_reward_mean == pytest.approx(1 / 4)
    assert whole.reward_std == pytest.approx(math.sqrt(3) / 4)  # of 0, 0, 0 and 1
    assert whole.completion_tokens == pytest.approx((3 * 10 + 1 * 30) / 4)
    assert whole.trained_reward_by_agent == {"planner": 1.0, "tool": 0.0}
    assert whole.by_policy == {"one": {"loss": 1.0}, "two": {"loss": 2.0}}
    assert (whole.groups_trained, whole.groups_zero_variance) == (3, 1)
    assert whole.groups_dropped == {"foreign": 1, "late": 3}
    assert (whole.candidates_filtered, whole.trained_tokens) == (2, 40)
    assert whole.is_flat is False
    assert whole.peak_memory_bytes == 7
    assert whole.trained_tokens_per_s == 40 / 2.0  # the slowest trainer learnt for 2 s
    assert whole.phases == {"learn": 1.0, "publish": 3.0}  # of the trainer that worked longest
    assert whole.extra == {"style": pytest.approx((30 * 1 + 10 * 5) / 40)}
    assert (whole.step, whole.policy_version) == (4, 5)
    assert (whole.policy, whole.counts, whole.advantage_mean) == ("", {}, None)


def test_over_policies_when_nothing_was_trained_then_only_critics_have_numbers() -> None:
    parts = [replace(part, trained_tokens=0, loss=None, entropy=None) for part in (ONE, TWO)]
    whole = over_policies(parts)
    assert (whole.loss, whole.entropy, whole.trained_tokens_per_s) == (None, None, None)
    assert whole.value_loss == pytest.approx(1.0)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=6), min_size=1, max_size=5))
def test_over_policies_when_rewards_are_split_in_any_way_then_as_of_all_at_once(
    split: list[list[float]],
) -> None:
    parts = [
        TrainerPart(
            step=0,
            trained_reward_mean=statistics.fmean(rewards) if rewards else None,
            reward_std=statistics.pstdev(rewards) if rewards else None,
            groups_trained=len(rewards),
            trained_tokens=len(rewards),
            loss=statistics.fmean(rewards) if rewards else None,
            ratio_max=max(rewards, default=None),
            counts={"candidates": len(rewards)},
        )
        for rewards in split
    ]
    whole, every = over_policies(parts), [reward for rewards in split for reward in rewards]
    assert whole.groups_trained == len(every)
    assert whole.ratio_max == max(every, default=None)
    if not every:
        assert (whole.trained_reward_mean, whole.reward_std, whole.loss) == (None, None, None)
        return
    assert whole.trained_reward_mean == pytest.approx(statistics.fmean(every), abs=1e-9)
    assert whole.loss == pytest.approx(statistics.fmean(every), abs=1e-9)
    assert whole.reward_std == pytest.approx(statistics.pstdev(every), abs=1e-6)
