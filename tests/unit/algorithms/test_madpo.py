"""MADPO's advantages against torch's own gradient of the preference loss."""

import math
from typing import Any

import pytest
import torch

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.madpo import Madpo
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError

BETA = 0.5


def spec(**changes: Any) -> AlgorithmSpec:
    return AlgorithmSpec.model_validate({"joint": {}, "preference": {"beta": BETA}, **changes})


def _group(agent: str, rewards: list[float], ratios: list[float], node: str = "n") -> GroupOutcome:
    members = [
        Sample(i, reward, 1, False, log_ratio=ratio)
        for i, (reward, ratio) in enumerate(zip(rewards, ratios, strict=True))
    ]
    return GroupOutcome(f"{agent}/{node}", agent, 0, members, node=node)


def _across(*groups: GroupOutcome) -> list[list[float]]:
    algorithm = Madpo(spec())
    return algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])


def test_madpo_when_worked_by_hand_then_the_team_prefers_its_best_joint_action() -> None:
    # Returns 1 + 0, 0 + 3, 0 + 0: candidate 1 wins, candidate 2 loses, though a liked 0 best.
    # Margin: (0.4 - 0.2) + (-0.6 - 0.0) = -0.4; weight 0.5 * sigmoid(0.2), times K = 3.
    weight = 3 * BETA / (1 + math.exp(-0.2))
    a = _group("a", [1.0, 0.0, 0.0], [0.0, 0.4, 0.2])
    b = _group("b", [0.0, 3.0, 0.0], [0.0, -0.6, 0.0])
    assert _across(a, b) == [pytest.approx([0.0, weight, -weight])] * 2


def test_madpo_when_joint_actions_are_equal_then_there_is_no_pair() -> None:
    a, b = _group("a", [1.0, 0.0], [0.0, 0.0]), _group("b", [0.0, 1.0], [0.0, 0.0])
    assert _across(a, b) == [[0.0, 0.0], [0.0, 0.0]]


def test_madpo_when_joint_actions_differ_by_rounding_then_there_is_no_pair() -> None:
    a, b = _group("a", [0.1, 0.3], [0.0, 0.0]), _group("b", [0.2, 0.0], [0.0, 0.0])
    assert 0.1 + 0.2 != 0.3
    assert _across(a, b) == [[0.0, 0.0], [0.0, 0.0]]


def test_madpo_when_there_are_several_nodes_then_each_has_its_own_pair() -> None:
    one = _group("a", [1.0, 0.0], [0.0, 0.0], "n0")
    two = _group("a", [0.0, 1.0], [0.0, 0.0], "n1")
    assert _across(one, two) == [[BETA, -BETA], [-BETA, BETA]]


def test_madpo_when_differentiated_then_gradient_is_that_of_the_preference_loss() -> None:
    # Two agents, K = 2, one token a completion, winner 0: the direct loss of agent a has b's
    # difference as a constant.
    ours = torch.tensor([-0.3, -1.2], requires_grad=True)
    theirs, reference = torch.tensor([-0.9, -0.2]), torch.tensor([-0.7, -0.8])
    margin = (ours - reference)[0] - (ours - reference)[1] + (theirs[0] - theirs[1])
    direct = -torch.nn.functional.logsigmoid(BETA * margin)
    (want,) = torch.autograd.grad(direct, ours)

    ratios_a = (ours.detach() - reference).tolist()
    found = _across(_group("a", [1.0, 0.0], ratios_a), _group("b", [0.0, 0.0], theirs.tolist()))
    algorithm = Madpo(spec())
    output = algorithm.loss(
        LossInputs(
            trainer_logprobs_N=ours,
            rollout_logprobs_N=ours.detach(),
            advantages_N=torch.tensor(found[0]),
            sequence_N=torch.tensor([0, 1]),
            weights_N=torch.ones(2),
        )
    )
    assert algorithm.aggregation == "sequence_sum"
    (got,) = torch.autograd.grad(output.loss_sum / 2, ours)
    assert got.tolist() == pytest.approx(want.tolist(), abs=1e-6)


def test_madpo_when_the_margin_is_huge_then_the_weight_is_a_number() -> None:
    far = _across(_group("a", [1.0, 0.0], [5000.0, 0.0]))
    assert far == [[pytest.approx(0.0, abs=1e-9)] * 2]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"joint": {"mode": "cross"}}, "/algorithm/joint/mode"),
        ({"minibatches": 2}, "/algorithm/minibatches"),
        ({"epochs": 2}, "/algorithm/epochs"),
        ({"loss": {"entropy_coef": 0.1}}, "/algorithm/loss"),
        ({"scale": "std"}, "/algorithm/loss"),
        ({"preference": None}, "/algorithm/preference"),
        ({"filters": {"truncated": True}}, "/algorithm/filters/truncated"),
    ],
)
def test_madpo_when_a_setting_would_be_ignored_or_split_pairs_then_is_refused(
    changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SpecInvalidError, match=pointer):
        Madpo(spec(**changes))
