"""Every registered algorithm: a ticket's advantages before the others are played, or it waits."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe import plugins
from troupe.algorithms.algorithm import advantages_of_step, credits_by_ticket
from troupe.algorithms.at_grpo import AtGrpo
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.load import load_algorithm
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec

WAIT = {
    "gdpo",
    "ippo",
    "madpo",
    "mappo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "role_conditioned",
}
PARTS: dict[str, dict[str, Any]] = {
    "follow": {"follow": {}},
    "ippo": {"critic": {"kind": "head"}},
    "mappo": {"critic": {"kind": "model"}},
    "magrpo": {"joint": {}},
    "madpo": {"joint": {}, "preference": {"beta": 0.1}},
    "matpo": {"params": {"lead": "solver"}},
}
REGISTERED = plugins.registered(plugins.ALGORITHMS)
REWARDS = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 1.0 / 3.0])


def _spec(kind: str, **more: Any) -> AlgorithmSpec:
    return AlgorithmSpec.model_validate(
        {"kind": kind, "group_size": 4, **PARTS.get(kind, {}), **more}
    )


@st.composite
def rounds(draw: st.DrawFn) -> list[list[GroupOutcome]]:
    """The groups of each ticket: two agents, four trajectories of two turns."""
    return [
        [
            GroupOutcome(
                f"t{ticket}/{agent}",
                agent,
                0,
                _samples(draw),
                node=f"t{ticket}",
                lead_returns=[draw(REWARDS) for _ in range(4)],
            )
            for agent in ("tool", "planner")
        ]
        for ticket in range(draw(st.integers(2, 4)))
    ]


def _samples(draw: st.DrawFn) -> Sequence[Sample]:
    returns = [draw(REWARDS) for _ in range(4)]
    return [
        Sample(
            place,
            returns[place // 2],
            3,
            False,
            trajectory=place // 2,
            turn=place % 2,
            prompt_digest=f"p{place % 2}",
            is_baseline=place >= 6,
        )
        for place in range(8)
    ]


@pytest.mark.parametrize("kind", REGISTERED)
def test_algorithm_when_registered_then_says_whether_it_waits_for_the_round(kind: str) -> None:
    spec = _spec(kind)
    assert credits_by_ticket(load_algorithm(spec), spec) == (kind not in WAIT)


@pytest.mark.parametrize("kind", [kind for kind in REGISTERED if kind not in WAIT])
@given(tickets=rounds())
@settings(max_examples=25, deadline=None)
def test_advantages_when_a_ticket_is_computed_alone_then_are_those_of_the_whole_round(
    kind: str, tickets: list[list[GroupOutcome]]
) -> None:
    algorithm = load_algorithm(_spec(kind))
    whole = advantages_of_step(algorithm, [group for groups in tickets for group in groups])
    alone = [a for groups in tickets for a in advantages_of_step(algorithm, groups)]
    assert alone == whole


@pytest.mark.parametrize("kind", ["reinforce_pp", "role_conditioned"])
def test_advantages_when_an_algorithm_waits_then_those_of_a_ticket_alone_would_differ(
    kind: str,
) -> None:
    algorithm = load_algorithm(_spec(kind))
    tickets = [
        [GroupOutcome(f"t{number}", "tool", 0, [_sample(i, reward) for i, reward in enumerate(of)])]
        for number, of in enumerate([(0.0, 1.0), (1.0, 0.5)])
    ]
    whole = advantages_of_step(algorithm, [group for groups in tickets for group in groups])
    assert whole != [a for groups in tickets for a in advantages_of_step(algorithm, groups)]


def _sample(index: int, reward: float) -> Sample:
    return Sample(index, reward, 3, False, trajectory=index)


class _Compares(GroupRelative):
    """A plug-in that looks across groups and says nothing of it."""

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        return [[value / len(groups) for value in values] for values in advantages]


class _Remembers(AtGrpo):
    """A plug-in with a running baseline."""

    def baselines(self) -> dict[str, Any]:
        return {}

    def restore_baselines(self, baselines: Any) -> None: ...


def test_plug_in_when_it_looks_across_groups_or_keeps_state_then_waits_unasked() -> None:
    spec = AlgorithmSpec(kind="grpo", group_size=4)
    assert not credits_by_ticket(_Compares(spec), spec)
    assert not credits_by_ticket(_Remembers(spec), spec)
    assert credits_by_ticket(AtGrpo(spec), spec)


def test_algorithm_when_kl_is_in_the_reward_then_waits_for_the_round() -> None:
    spec = _spec("at_grpo", loss={"kl": {"coef": 0.1, "where": "reward"}})
    assert not credits_by_ticket(load_algorithm(spec), spec)
