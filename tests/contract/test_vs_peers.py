"""What the rows of the comparison with peers say of its runs."""

from typing import Any

import pytest

from benchmarks import vs_peers


def _run(rewards: list[float], cpu_s: float) -> dict[str, Any]:
    figures = {"sequences": 64, "tokens": 640, "cpu_s": cpu_s, "wall_s": 4.0, "peak_mb": 7.0}
    return figures | {"rewards": rewards}


def test_row_when_there_are_several_runs_then_the_curve_is_their_mean_by_step() -> None:
    runs = [_run([0.1, 0.1, 0.2, 0.3, 0.4, 0.6], 2.0), _run([0.1, 0.3, 0.2, 0.3, 0.6, 0.6], 4.0)]
    row = vs_peers.row_of("trl_grpo", runs)
    assert row["reward_by_step"] == [0.1, 0.2, 0.2, 0.3, 0.5, 0.6]
    assert row["reward_gained"] == pytest.approx(0.55 - 0.15)
    assert row["sequences_per_cpu_s"] == 24.0


def test_gain_when_there_are_few_steps_then_is_of_the_last_less_the_first() -> None:
    assert vs_peers.gained([0.25, 0.5]) == 0.25
    assert vs_peers.gained([0.25]) == 0.0


def test_rate_when_it_is_given_then_all_learn_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["vs_peers", "--rate", "1e-4", "--steps", "9"])
    plans = vs_peers.plans_of(vs_peers.arguments())
    assert [(plan.rate, plan.steps) for plan in plans] == [(1e-4, 9), (1e-4, 9)]
