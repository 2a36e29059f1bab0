"""On-policy distillation: its loss against plain arithmetic, and what a spec may ask of it."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from trainer_data import job_spec

from troupe.algorithms.algorithm import LossInputs, credits_by_ticket
from troupe.algorithms.distill import Distill, DistillParams
from troupe.algorithms.load import load_algorithm
from troupe.algorithms.losses.distillation import distillation_loss
from troupe.candidates import GroupOutcome, Sample
from troupe.episodes.build import load_parts
from troupe.spec.algorithm import AlgorithmSpec, LossSpec
from troupe.spec.checks import submission_issues
from troupe.spec.issues import SpecInvalidError


def _doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _inputs(
    trainer: Tensor, rollout: list[float], teacher: list[float] | None, **more: Any
) -> LossInputs:
    size = len(rollout)
    defaults: dict[str, Any] = {
        "advantages_N": _doubles([0.0] * size),
        "sequence_N": torch.zeros(size, dtype=torch.int64),
        "weights_N": _doubles([1.0] * size),
    }
    return LossInputs(
        trainer_logprobs_N=trainer,
        rollout_logprobs_N=_doubles(rollout),
        teacher_logprobs_N=None if teacher is None else _doubles(teacher),
        **(defaults | more),
    )


def _spec(**algorithm: Any) -> AlgorithmSpec:
    return AlgorithmSpec.model_validate({"kind": "distill", "group_size": 1, **algorithm})


def _group(*rewards: float) -> GroupOutcome:
    samples = [Sample(i, reward, 3, False, trajectory=i) for i, reward in enumerate(rewards)]
    return GroupOutcome("g", "tool", 0, samples)


def test_loss_when_worked_by_hand_then_is_that_of_the_page() -> None:
    # The policy gives its two tokens 1/4 and 1/2, the teacher 1/2 and 1/8: A = log 2 and -log 4.
    trainer = _doubles([math.log(1 / 4), math.log(1 / 2)]).requires_grad_()
    inputs = _inputs(trainer, trainer.tolist(), [math.log(1 / 2), math.log(1 / 8)])
    output = distillation_loss(inputs, LossSpec())
    assert output.metric_sums["kl_teacher"] == pytest.approx(math.log(2), abs=1e-12)
    output.loss_sum.backward()  # pyright: ignore[reportUnknownMemberType]
    assert trainer.grad is not None
    assert trainer.grad.tolist() == pytest.approx([-math.log(2), math.log(4)], abs=1e-12)


@pytest.mark.parametrize("has_old", [False, True])
@pytest.mark.parametrize("reward_coef", [0.0, 0.7])
def test_loss_when_compared_with_plain_arithmetic_then_agrees_to_1e_9(
    reward_coef: float, has_old: bool
) -> None:
    rng = random.Random(5)
    trainer, rollout, teacher, old, advantages, weights = (
        [-3.0 * rng.random() for _ in range(40)] for _ in range(6)
    )
    variable = _doubles(trainer).requires_grad_()
    inputs = _inputs(
        variable,
        rollout,
        teacher,
        advantages_N=_doubles(advantages),
        weights_N=_doubles(weights),
        **({"old_logprobs_N": _doubles(old)} if has_old else {}),
    )
    output = distillation_loss(inputs, LossSpec(), reward_coef)
    output.loss_sum.backward()  # pyright: ignore[reportUnknownMemberType]
    assert variable.grad is not None
    loss, kl, gradients = 0.0, 0.0, list[float]()
    for t, r, q, o, a, w in zip(trainer, rollout, teacher, old, advantages, weights, strict=True):
        gain = q - (o if has_old else r)
        worth, ratio = gain + reward_coef * a, math.exp(t - r)
        clipped = min(max(ratio, 0.8), 1.2)
        loss -= w * min(ratio * worth, clipped * worth)
        gradients.append(-w * ratio * worth if ratio * worth <= clipped * worth else 0.0)
        kl -= gain
    assert output.loss_sum.item() == pytest.approx(loss, abs=1e-9)
    assert output.metric_sums["kl_teacher"] == pytest.approx(kl, abs=1e-9)
    assert variable.grad.tolist() == pytest.approx(gradients, abs=1e-9)


def test_gradient_when_expected_over_all_tokens_then_is_that_of_the_reverse_kl() -> None:
    torch.manual_seed(0)
    logits_V = torch.randn(7, dtype=torch.float64, requires_grad=True)
    teacher_V = torch.log_softmax(torch.randn(7, dtype=torch.float64), 0)
    policy_V = torch.log_softmax(logits_V, 0)
    (exact,) = torch.autograd.grad(
        (policy_V.exp() * (policy_V - teacher_V)).sum(), logits_V, retain_graph=True
    )
    inputs = _inputs(
        policy_V, policy_V.tolist(), teacher_V.tolist(), weights_N=policy_V.exp().detach()
    )
    output = distillation_loss(inputs, LossSpec())
    (expected,) = torch.autograd.grad(output.loss_sum, logits_V)
    assert expected.tolist() == pytest.approx(exact.tolist(), abs=1e-9)


def test_loss_when_the_teacher_is_missing_then_says_so() -> None:
    with pytest.raises(ValueError, match="needs teacher_logprobs_N"):
        distillation_loss(_inputs(_doubles([-1.0]), [-1.0], None), LossSpec())


def test_advantages_when_rewards_count_then_are_those_of_the_group_and_else_0() -> None:
    group = _group(0.0, 0.0, 0.0, 1.0)
    assert Distill(_spec()).advantages(group) == [0.0] * 4
    mixed = Distill(_spec(group_size=4, scale="none"), DistillParams(reward_coef=0.5))
    assert mixed.advantages(group) == [-0.25, -0.25, -0.25, 0.75]


def test_algorithm_when_loaded_then_needs_a_teacher_and_credits_by_ticket() -> None:
    algorithm = load_algorithm(_spec())
    assert algorithm.needs.teacher
    assert algorithm.needs.candidates == 1
    assert credits_by_ticket(algorithm, _spec())
    assert algorithm.sampler().num_trajectories == 1
    tree = load_algorithm(_spec(group_size=3, params={"sampling": "tree"}))
    assert tree.sampler().num_candidates == 3


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"filters": {"zero_variance": True}}, "/algorithm/filters/zero_variance"),
        ({"redraws": 2}, "/algorithm/redraws"),
        ({"scale": "none"}, "/algorithm/scale"),
        ({"overlong": {"buffer": 4}}, "/algorithm/overlong"),
        ({"loss": {"kl": {"coef": 0.1, "where": "reward"}}}, "/algorithm/loss/kl/where"),
        ({"joint": {}}, "/algorithm/joint"),
        ({"params": {"reward_coef": 0.5}}, "/algorithm/group_size"),
        ({"params": {"reward_coef": -1}}, "/algorithm/params/reward_coef"),
        ({"kind": "grpo"}, "/algorithm/group_size"),
    ],
)
def test_spec_when_it_asks_what_distillation_does_not_read_then_is_refused_by_name(
    changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SpecInvalidError) as refused:
        load_algorithm(_spec(**changes))
    assert pointer in [issue.pointer for issue in refused.value.issues]


@pytest.mark.parametrize(
    ("teacher", "algorithm", "message"),
    [
        ("./small", {}, "is the policy's own model"),
        ("./small", {"group_size": 4, "params": {"reward_coef": 0.5}}, None),
        ("./small", {"demonstrations": {"path": "shown.jsonl"}}, None),
        ("./small", {"loss": {"entropy_coef": 0.01}}, None),
        ("scout", {}, "name 'large', or ./scout"),
        ("./scout", {}, None),
        ("large", {}, None),
    ],
)
def test_teacher_when_it_is_the_policy_itself_or_another_policy_then_is_refused(
    teacher: str, algorithm: dict[str, Any], message: str | None
) -> None:
    policies = {"p": {"model": "small", "teacher": teacher}, "scout": {"model": "large"}}
    agents = {"tool": {"policy": "p"}, "planner": {"policy": "scout"}}
    policies["scout"]["teacher"] = "larger"
    spec = job_spec(
        Path("small"), policies=policies, agents=agents, algorithm={"kind": "distill", **algorithm}
    )
    found = {issue.pointer: issue.message for issue in submission_issues(spec)}
    assert list(found) == (["/policies/p/teacher"] if message else [])
    assert message is None or message in found["/policies/p/teacher"]


@pytest.mark.parametrize(
    ("kind", "policy", "message"),
    [
        ("distill", {}, "learns from a teacher; name a model folder"),
        ("at_grpo", {"teacher": "big"}, "'at_grpo' learns from no teacher"),
        ("distill", {"teacher": "big", "frozen": True}, "never learns; leave it out"),
    ],
)
def test_job_when_its_policies_and_teachers_do_not_match_then_is_refused_by_policy(
    kind: str, policy: dict[str, Any], message: str
) -> None:
    policies = {
        "taught": {"model": "small", **({"teacher": "big"} if kind == "distill" else {})},
        "other": {"model": "small", **policy},
    }
    agents = {"tool": {"policy": "taught"}, "planner": {"policy": "other"}}
    spec = job_spec(Path("small"), policies=policies, agents=agents, algorithm={"kind": kind})
    with pytest.raises(SpecInvalidError, match=message) as refused:
        load_parts(spec)
    assert [issue.pointer for issue in refused.value.issues] == ["/policies/other/teacher"]
    taught = {**spec.policies, "other": spec.policies["taught"]}
    if kind == "distill":
        assert load_parts(spec.model_copy(update={"policies": taught})).algorithm.needs.teacher
