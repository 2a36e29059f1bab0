import pytest

from troupe.spec.policy import OptimizerSpec
from troupe_trainer.learn.schedule import learning_rate


def test_rate_when_warming_up_then_rises_linearly_to_the_peak() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=4)
    rates = [learning_rate(spec, s, 100) for s in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_rate_when_linear_then_falls_to_the_floor_at_the_last_step() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=0, schedule="linear", min_ratio=0.2)
    assert [learning_rate(spec, s, 5) for s in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_rate_when_cosine_then_is_half_way_in_the_middle() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=0, schedule="cosine", min_ratio=0.0)
    assert learning_rate(spec, 2, 5) == pytest.approx(0.5)
    assert learning_rate(spec, 4, 5) == pytest.approx(0.0)
