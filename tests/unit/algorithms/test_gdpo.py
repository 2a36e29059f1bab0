"""GDPO on numbers that can be followed by hand, and against the paper's formula in NumPy."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.algorithms.gdpo import Gdpo, GdpoParams
from troupe.algorithms.load import load_algorithm
from troupe.candidates import GroupOutcome, Sample
from troupe.errors import InvalidArgumentError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError

SCALED = AlgorithmSpec(kind="gdpo", group_size=2)
PLAIN = AlgorithmSpec(kind="gdpo", group_size=2, scale="none")
Terms = Mapping[str, float]


def siblings(rows: Sequence[Terms], weights: Terms, name: str = "g") -> GroupOutcome:
    samples = [Sample(i, 0.0, 3, False, terms=terms) for i, terms in enumerate(rows)]
    return GroupOutcome(name, "planner", 0, samples, term_weights=weights)


def test_advantages_when_sums_are_equal_then_terms_still_differ() -> None:
    # Both rewards are 1. Right: 0, 1 centred -1/2, 1/2, times 2; short: 1, 0 centred 1/2, -1/2.
    rows = [{"right": 0.0, "short": 1.0}, {"right": 1.0, "short": 0.0}]
    group = siblings(rows, {"right": 2.0, "short": 1.0})
    assert Gdpo(PLAIN, GdpoParams()).advantages(group) == [-0.5, 0.5]


def test_advantages_when_one_term_is_large_then_it_does_not_drown_the_others() -> None:
    # Each term alone normalises to -1/sqrt(2), 1/sqrt(2) of opposite signs: they cancel.
    rows = [{"cost": 0.0, "right": 1.0}, {"cost": 100.0, "right": 0.0}]
    algorithm = Gdpo(SCALED, GdpoParams())
    assert algorithm.advantages(siblings(rows, {"cost": 1.0, "right": 1.0})) == pytest.approx(
        [0.0, 0.0], abs=1e-5
    )
    assert algorithm.advantages(siblings(rows, {"cost": -1.0, "right": 1.0})) == pytest.approx(
        [2**0.5, -(2**0.5)], abs=1e-5
    )


def test_advantages_when_whole_episodes_then_a_trajectory_counts_once() -> None:
    samples = [
        Sample(0, 0.0, 3, False, trajectory=0, turn=0, terms={"t": 3.0}),
        Sample(1, 0.0, 3, False, trajectory=0, turn=1, terms={"t": 3.0}),
        Sample(2, 0.0, 3, False, trajectory=1, turn=0, terms={"t": 1.0}),
    ]
    group = GroupOutcome("g", "planner", 0, samples, term_weights={"t": 1.0})
    algorithm = Gdpo(PLAIN, GdpoParams(sampling="parallel"))
    assert algorithm.advantages(group) == [1.0, 1.0, -1.0]
    assert algorithm.sampler().num_trajectories == 2


def test_step_when_a_group_is_flat_then_it_stays_at_exactly_0() -> None:
    flat = siblings([{"t": 0.1}, {"t": 0.1}, {"t": 0.1}], {"t": 1.0})
    other = siblings([{"t": 0.3}, {"t": 0.1}, {"t": 0.2}], {"t": 1.0})
    algorithm = Gdpo(SCALED, GdpoParams())
    groups = [flat, other]
    found = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    assert found[0] == [0.0, 0.0, 0.0]
    # 1, -1, 0 over the six candidates: mean 0, sample variance 2 / 5.
    assert found[1] == pytest.approx([2.5**0.5, -(2.5**0.5), 0.0], abs=1e-4)


def gdpo_by_numpy(groups: Sequence[GroupOutcome]) -> list[np.ndarray]:
    """Term by term in the group, weighted sum, then (A - mean) / std over the batch."""
    sums: list[np.ndarray] = []
    for group in groups:
        total = np.zeros(len(group.candidates))
        for term, weight in group.term_weights.items():
            values = np.array([c.terms[term] for c in group.candidates])
            std = np.std(values, ddof=1)
            total += 0 if std < 1e-8 else weight * (values - values.mean()) / (std + 1e-6)
        sums.append(total)
    batch = np.concatenate(sums)
    std = np.std(batch, ddof=1)
    return [0 * t if std < 1e-8 else (t - batch.mean()) / (std + 1e-6) for t in sums]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_step_when_compared_with_the_papers_formula_then_agrees_to_1e_9(seed: int) -> None:
    rng = Random(seed)
    weights = {name: rng.choice([0.0, 0.5, 1.0, 2.0, -1.0]) for name in ("a", "b", "c")}
    groups = [
        siblings(
            [{t: rng.choice([0.0, 1.0, rng.uniform(-3, 3)]) for t in weights} for _ in range(4)],
            weights,
        )
        for _ in range(rng.randint(1, 4))
    ]
    algorithm = Gdpo(SCALED, GdpoParams())
    found = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    for values, expected in zip(found, gdpo_by_numpy(groups), strict=True):
        assert values == pytest.approx(expected.tolist(), abs=1e-9)


def test_advantages_when_a_group_has_no_terms_then_says_why() -> None:
    with pytest.raises(InvalidArgumentError, match="group 'g' carries no reward terms"):
        Gdpo(PLAIN, GdpoParams()).advantages(siblings([{}, {}], {}))


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ({"loss": {"kl": {"coef": 0.1, "where": "reward"}}}, "/algorithm/loss/kl/where"),
        ({"overlong": {"buffer": 4}}, "/algorithm/overlong"),
        ({"redraws": 2}, "/algorithm/redraws"),
    ],
)
def test_spec_when_a_part_changes_the_sum_alone_then_is_refused(
    part: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SpecInvalidError, match=pointer):
        load_algorithm(AlgorithmSpec.model_validate({"kind": "gdpo", **part}))
