"""What benchmarks.credit holds to be the truth, checked by other means."""

import math

import pytest

from benchmarks.credit_game import AGENTS, NUMBERS, CreditGame, Paid


@pytest.mark.parametrize("paid", ["outcome", "turns"])
def test_gradient_when_a_logit_moves_then_is_the_change_of_the_return(paid: Paid) -> None:
    game = CreditGame(3, paid)
    exact, step, compared = game.gradient, 1e-6, 0
    for prompt, values in list(exact.items()):
        if prompt.startswith("rider") or " 1 after 0" in prompt:
            continue
        chances = list(game.policy(prompt))
        for place in range(NUMBERS):
            returns: list[float] = []
            for sign in (1, -1):
                moved = [p * math.exp(sign * step * (n == place)) for n, p in enumerate(chances)]
                game.policies[prompt] = [p / sum(moved) for p in moved]
                returns.append(game.value([]))
            game.policies[prompt] = chances
            assert values[place] == pytest.approx((returns[0] - returns[1]) / (2 * step), abs=1e-8)
            compared += abs(values[place]) > 1e-4
    assert compared > 10


def test_rider_when_all_is_computed_then_contributes_nothing() -> None:
    game = CreditGame(1, "outcome")
    riders = [values for prompt, values in game.contributions.items() if prompt.startswith("rider")]
    assert len(riders) == 9 + 81
    assert all(abs(value) < 1e-12 for values in riders for value in values)
    assert game.shapley["rider"] == pytest.approx(0.0, abs=1e-12)
    whole, nobody = game.value([]), game.value([], frozenset())
    assert sum(game.shapley[agent] for agent in AGENTS) == pytest.approx(whole - nobody)


def test_contributions_when_weighted_by_the_policy_then_are_nothing() -> None:
    game = CreditGame(2, "turns")
    for prompt, values in game.contributions.items():
        mean = sum(p * q for p, q in zip(game.policy(prompt), values, strict=True))
        assert mean == pytest.approx(0.0, abs=1e-12)
