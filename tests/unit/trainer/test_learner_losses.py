"""What a loss asks of the learner: reference, old log probabilities, averages and filters."""

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec, make_group

from troupe.algorithms.algorithm import LossInputs, LossOutput
from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.errors import JobFailedError, UnavailableError
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.spec.job import JobSpec
from troupe_trainer.learn.called_loss import LossFailedError
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.samples import CreditedGroup, credit

LORA: dict[str, Any] = {"kind": "lora", "rank": 4, "alpha": 8}
FULL: dict[str, Any] = {"kind": "full"}


def _spec(model: Path, train: dict[str, Any], **algorithm: Any) -> JobSpec:
    policy = {
        "model": str(model),
        "train": train,
        "optimizer": {"learning_rate": 0.003, "warmup_steps": 0},
    }
    return job_spec(
        model, policies={"shared": policy}, algorithm={"group_size": 4, "scale": "none"} | algorithm
    )


def _learner(spec: JobSpec) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")


def _on_policy(learner: Learner, group: pb.Group) -> pb.Group:
    """The group as if the learner's own weights had sampled it."""
    for candidate in group.candidates:
        tokens = [*group.prompts[0].token_ids, *candidate.token_ids]
        logprobs = learner.model.score(tokens)[-len(candidate.token_ids) :]
        candidate.rollout_logprobs[:] = logprobs
    return group


def _credited(group: pb.Group, spec: JobSpec, **options: bool) -> CreditedGroup:
    advantages = AtGrpo(spec.algorithm).advantages(group_outcome(group))
    return credit(group, advantages, 1.0, **options)


class Namesake(AtGrpo):
    """Its loss gives numbers under names that the learner measures itself."""

    def loss(self, inputs: LossInputs) -> LossOutput:
        output = super().loss(inputs)
        taken = {"entropy": 1e6, "loss": 1e6, "grad_norm": 1e6, "mine": 0.0}
        return replace(output, metric_sums={**output.metric_sums, **taken})


def test_numbers_of_a_step_when_a_loss_takes_their_names_then_both_are_kept(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model, LORA)
    group = _credited(make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0]), spec)
    plain = _learner(spec).step([group]).metrics
    namesake = Learner("shared", spec, Namesake(spec.algorithm), device="cpu").step([group]).metrics
    assert {name: namesake[name] for name in plain} == plain
    assert namesake.keys() - plain.keys() == {"loss_entropy", "loss_loss", "loss_grad_norm", "mine"}
    assert plain.keys() <= TrainerPart.metrics().keys()


class Misspelt(AtGrpo):
    def loss(self, inputs: Any) -> LossOutput:
        return inputs.advantages


class Exits(AtGrpo):
    def loss(self, inputs: LossInputs) -> LossOutput:
        sys.exit(3)


class Detached(AtGrpo):
    def loss(self, inputs: LossInputs) -> LossOutput:
        return LossOutput(inputs.trainer_logprobs_N.detach().sum(), {})


class Unsummed(AtGrpo):
    def loss(self, inputs: LossInputs) -> LossOutput:
        return LossOutput(inputs.trainer_logprobs_N, {})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Misspelt, r"'Misspelt': loss raised AttributeError: .*`return inputs.advantages`"),
        (Exits, r"'Exits': loss raised SystemExit: 3 \(at .*`sys.exit\(3\)`"),
        (Detached, "gave a loss_sum that has no gradient"),
        (Unsummed, r"gave a loss_sum that has the shape \(\d+,\); give the sum"),
    ],
)
def test_step_when_an_own_loss_fails_then_one_sentence_names_it_and_its_line(
    tiny_model: Path, kind: type[AtGrpo], words: str
) -> None:
    spec = _spec(tiny_model, LORA)
    group = _credited(make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0]), spec)
    learner = Learner("shared", spec, kind(spec.algorithm), device="cpu")
    with pytest.raises(LossFailedError, match=words) as caught:
        learner.step([group])
    assert "test_learner_losses.py" in caught.value.message


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MemoryError(), MemoryError),
        (UnavailableError("a judge"), UnavailableError),
        (torch.OutOfMemoryError("CUDA out of memory"), JobFailedError),
    ],
)
def test_step_when_a_machine_is_short_in_a_loss_then_the_loss_is_not_blamed(
    tiny_model: Path, error: Exception, raised: type[Exception]
) -> None:
    class Starved(AtGrpo):
        def loss(self, inputs: LossInputs) -> LossOutput:
            raise error

    spec = _spec(tiny_model, LORA)
    group = _credited(make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0]), spec)
    with pytest.raises(raised) as caught:
        Learner("shared", spec, Starved(spec.algorithm), device="cpu").step([group])
    assert type(caught.value) is raised
    assert "Starved" not in str(caught.value)


@pytest.mark.parametrize("train", [LORA, FULL], ids=["lora", "full"])
def test_kl_in_the_loss_when_the_policy_has_moved_then_pulls_it_back(
    tiny_model: Path, train: dict[str, Any]
) -> None:
    free = _spec(tiny_model, train)
    held = _spec(tiny_model, train, loss={"kl": {"coef": 1.0}})
    learner, puller = _learner(free), _learner(held)
    group = make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0])
    for _ in range(5):
        learner.step([_credited(_on_policy(learner, group), free)])
    puller.restore(learner.state())
    flat = make_group(random.Random(5), rewards=[0.5] * 4)
    found = [
        puller.step([_credited(_on_policy(puller, flat), held)]).metrics["kl_ref"] for _ in range(8)
    ]
    assert found[0] > 1e-4
    assert found[-1] < 0.5 * found[0]


@pytest.mark.parametrize("train", [LORA, FULL], ids=["lora", "full"])
def test_reference_kl_when_nothing_was_learnt_then_zero_and_the_present_weights_stay(
    tiny_model: Path, train: dict[str, Any]
) -> None:
    spec = _spec(tiny_model, train, loss={"kl": {"coef": 0.1, "where": "reward"}})
    learner = _learner(spec)
    group = _on_policy(learner, make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0]))
    start = learner.reference_kl([_credited(group, spec)])[0]
    assert start == pytest.approx([0.0] * 4, abs=1e-4)
    for _ in range(3):
        learner.step([_credited(_on_policy(learner, group), spec)])
    before = learner.model.score([1, 2, 3, 4])
    moved = learner.reference_kl([_credited(_on_policy(learner, group), spec)])[0]
    assert max(moved) > 1e-4
    assert learner.model.score([1, 2, 3, 4]) == before


def test_importance_when_the_engine_differs_then_nothing_is_clipped_before_the_policy_moves(
    tiny_model: Path,
) -> None:
    corrected = _spec(tiny_model, LORA, loss={"importance": {"cap": 1.5}})
    plain = _spec(tiny_model, LORA)
    group = make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0])
    outcomes = []
    for spec in (corrected, plain):
        learner = _learner(spec)
        _on_policy(learner, group)
        for candidate in group.candidates:
            candidate.rollout_logprobs[:] = [x - 0.5 for x in candidate.rollout_logprobs]
        outcomes.append(learner.step([_credited(group, spec)]).metrics)
    assert outcomes[0]["clip_fraction"] == 0.0
    assert outcomes[0]["importance_capped"] == 1.0
    assert outcomes[1]["clip_fraction"] > 0.1
    assert outcomes[0]["ratio_mean"] == pytest.approx(outcomes[1]["ratio_mean"])


@pytest.mark.parametrize(
    ("aggregation", "loss"),
    # Advantages 1/2 and -1/2 on completions of 1 and 3 tokens, ratio 1 everywhere: the token
    # terms are -1/2, and three times +1/2.
    [("token", (-0.5 + 1.5) / 4), ("sequence", (-0.5 + 0.5) / 2), ("sequence_sum", 1.0 / 2)],
)
def test_loss_when_lengths_differ_then_the_aggregation_says_what_is_averaged(
    tiny_model: Path, aggregation: str, loss: float
) -> None:
    spec = _spec(tiny_model, LORA, aggregation=aggregation)
    learner = _learner(spec)
    group = make_group(random.Random(5), size=2, rewards=[1.0, 0.0])
    for candidate, tokens in zip(group.candidates, ([7], [8, 9, 10]), strict=True):
        candidate.token_ids[:] = tokens
    outcome = learner.step([_credited(_on_policy(learner, group), spec)])
    assert outcome.metrics["loss"] == pytest.approx(loss, abs=1e-4)


def test_truncated_completions_when_filtered_then_are_neither_learnt_nor_counted(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model, LORA)
    learner = _learner(spec)
    group = _on_policy(learner, make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0]))
    group.candidates[0].finish_reason = pb.FINISH_REASON_LENGTH
    credited = _credited(group, spec, drop_truncated=True)
    assert credited.num_filtered == 1
    assert credited.num_samples == 3
    assert credited.advantages[1] == -0.25
    outcome = learner.step([credited])
    assert outcome.trained_tokens == sum(len(c.token_ids) for c in group.candidates[1:])


async def test_team_when_kl_is_in_the_reward_then_advantages_lose_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = _spec(tiny_model, LORA, loss={"kl": {"coef": 0.5, "where": "reward", "estimator": "k1"}})
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        learner = team.by_policy["shared"]
        group = _on_policy(learner, make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0]))
        # Sampled with k1 = log pi - log ref = 0.2 a token above the reference.
        for candidate in group.candidates:
            candidate.token_ids[:] = candidate.token_ids[:2]
            candidate.rollout_logprobs[:] = [x + 0.2 for x in candidate.rollout_logprobs[:2]]
        group.candidates[3].rollout_logprobs[:] = [
            x - 0.2 for x in group.candidates[3].rollout_logprobs
        ]
        found = team.credit("shared", [group])[0].advantages
    finally:
        team.close()
    # Rewards 1, 0, 0, 0 less 0.5 * 0.2 * 2 tokens: 0.8, -0.2, -0.2, 0; mean 0.1.
    assert found == pytest.approx([0.7, -0.3, -0.3, -0.1], abs=1e-3)


def test_groups_without_variance_when_the_loss_has_a_kl_then_are_still_learnt_from(
    tiny_model: Path,
) -> None:
    torch.manual_seed(0)
    spec = _spec(tiny_model, LORA, loss={"kl": {"coef": 0.1}})
    learner = _learner(spec)
    flat = _on_policy(learner, make_group(random.Random(1), rewards=[0.5] * 4))
    assert learner.step([_credited(flat, spec)]).trained_tokens > 0


class _Likelihood(AtGrpo):
    """An own loss that asks for no advantage."""

    def loss(self, inputs: LossInputs) -> LossOutput:
        return LossOutput(-(inputs.trainer_logprobs_N * inputs.weights_N).sum(), {})


def test_groups_without_variance_when_the_loss_is_an_own_one_then_it_is_asked(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model, LORA)
    flat = make_group(random.Random(1), rewards=[0.5] * 4)
    own = Learner("shared", spec, _Likelihood(spec.algorithm), device="cpu")
    assert own.step([_credited(flat, spec)]).trained_tokens > 0
    assert _learner(spec).step([_credited(flat, spec)]).trained_tokens == 0
