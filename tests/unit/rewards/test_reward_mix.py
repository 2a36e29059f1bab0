import pytest

from troupe.errors import InvalidArgumentError
from troupe.rewards.mix import RewardMix
from troupe.spec import SpecInvalidError
from troupe.spec.reward import RewardSpec

DEFAULTS = {"planner": {"format": 0.1, "legal": 0.1, "path": 0.8}}


def test_reward_when_alpha_and_weights_are_given_then_hand_worked_sum():
    mix = RewardMix(RewardSpec(alpha=0.5, weights={"planner": {"path": 0.4}}), DEFAULTS)
    # 0.5 * 1.0 + 0.1 * 1 + 0.1 * 0.5 + 0.4 * 0.25
    assert mix("planner", 1.0, {"format": 1, "legal": 0.5, "path": 0.25}) == pytest.approx(0.75)


def test_reward_when_spec_weighs_unknown_term_then_pointer_and_hint():
    with pytest.raises(SpecInvalidError, match="did you mean 'format'") as caught:
        RewardMix(RewardSpec(weights={"planner": {"fromat": 1}}), DEFAULTS)
    assert caught.value.pointer == "/reward/weights/planner/fromat"


def test_reward_when_environment_returns_undeclared_term_then_error_not_zero():
    with pytest.raises(InvalidArgumentError, match="surprise"):
        RewardMix(RewardSpec(), DEFAULTS)("planner", 0.0, {"surprise": 1.0})
