"""What a task pays is a number wherever it is judged, so that a wire changes nothing of it."""

import math
from typing import Any, cast

import pytest

from troupe.clients.codec import outcome_from_proto, outcome_to_proto
from troupe.episodes.judge import outcomes
from troupe.errors import RewardFailedError
from troupe.rewards.mix import check_paid
from troupe.tasks.family import Environment, Observation, Transition


class Paying:
    """An environment that pays what it is told to, of whatever type."""

    def __init__(self, paid: Any) -> None:
        self.paid = paid

    def reset(self, task: Any) -> bytes:
        return b"state"

    def observe(self, state: bytes, agent: str) -> Observation:
        return ()

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        return Transition(state, self.paid, {"term": self.paid}, done=True, success=False)


def paid_over_the_wire(paid: Any) -> tuple[float, float]:
    [judged] = outcomes(cast("Environment", Paying(paid)), b"state", "a", ["x"], ())
    sent = outcome_from_proto(outcome_to_proto(judged))
    return sent.team_reward, sent.local_rewards["term"]


@pytest.mark.parametrize("paid", [None, "1", b"1", [1.0]])
def test_pay_when_it_is_no_number_then_is_nan_and_refused(paid: Any) -> None:
    team, term = paid_over_the_wire(paid)
    assert math.isnan(team)
    assert math.isnan(term)
    with pytest.raises(RewardFailedError, match="task 't' paid nan, or no number, for agent 'a'"):
        check_paid("t", "a", "x", team, {})


@pytest.mark.parametrize("paid", [1, 0.5, True])
def test_pay_when_it_is_a_number_then_it_is_that_one(paid: Any) -> None:
    assert paid_over_the_wire(paid) == (float(paid), float(paid))
