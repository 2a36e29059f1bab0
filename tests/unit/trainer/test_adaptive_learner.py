"""Coefficients that follow a target, in a learner: reported, followed, and kept over a restart."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from trainer_data import groups_of_step, job_spec, make_group

from troupe.algorithms.adaptive import Coefficients
from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import group_outcome
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.samples import CreditedGroup, credit

LOSS: dict[str, Any] = {
    "entropy_coef": 0.01,
    "adaptive_entropy": {"target": 2.0, "delta": 0.01},
    "kl": {"coef": 0.1, "estimator": "k2", "adaptive": {"target": 0.01, "gain": 1.0}},
}


def _spec(model: Path, loss: Mapping[str, Any] = LOSS) -> JobSpec:
    return job_spec(model, algorithm={"group_size": 4, "loss": dict(loss), "minibatches": 2})


def _learner(spec: JobSpec) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")


def _step(spec: JobSpec, step: int) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    return [
        credit(group, algorithm.advantages(group_outcome(group)), 1.0)
        for group in groups_of_step(step)
    ]


def test_steps_when_targets_are_set_then_coefficients_follow_what_was_measured(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model)
    learner = _learner(spec)
    expected, metrics = Coefficients(0.1, 0.01), dict[str, float]()
    for step in range(4):
        metrics = learner.step(_step(spec, step)).metrics
        reported = {name: metrics[name] for name in ("kl_coef", "entropy_coef")}
        assert reported == {"kl_coef": expected.kl, "entropy_coef": expected.bonus}
        expected = expected.after(metrics, spec.algorithm.loss)
    assert expected.kl != 0.1
    assert metrics.keys() <= TrainerPart.metrics().keys()


def _on_policy_step(learner: Learner) -> dict[str, float]:
    """Metrics of a step on what the present weights would sample, with the mean KL of a token that
    its rewards are ``taxed`` by."""
    group = make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0])
    for candidate in group.candidates:
        tokens = [*group.prompts[0].token_ids, *candidate.token_ids]
        logprobs = learner.model.score(tokens)[-len(candidate.token_ids) :]
        candidate.rollout_logprobs[:] = logprobs
    credited = credit(group, [0.75, -0.25, -0.25, -0.25], 1.0)
    taxed = sum(learner.reference_kl([credited])[0]) / credited.num_tokens
    return {**learner.step([credited]).metrics, "taxed": taxed}


def test_divergence_when_rewards_are_taxed_then_is_that_of_the_tax_and_not_of_later_updates(
    tiny_model: Path,
) -> None:
    """Policy and reference are the same before the first update, whatever the step then learns."""
    taxed = {"coef": 0.5, "where": "reward", "estimator": "k1", "adaptive": {"target": 0.05}}
    algorithm = {"group_size": 4, "loss": {"kl": taxed}, "minibatches": 2, "epochs": 4}
    learner = _learner(job_spec(tiny_model, algorithm=algorithm))
    first, second = (_on_policy_step(learner) for _ in range(2))
    assert first["kl_rollout"] > 1e-3  # the updates moved the policy
    assert first["kl_ref"] == pytest.approx(0.0, abs=1e-5)
    assert abs(second["kl_ref"]) > 1e-3
    assert second["kl_ref"] == pytest.approx(second["taxed"], rel=1e-5)


@pytest.mark.parametrize("coef", [0.0, 4.0])
def test_divergence_when_it_is_above_the_target_then_the_coefficient_pulls_harder(
    tiny_model: Path, coef: float
) -> None:
    """The same step under another coefficient ends in other weights."""
    spec = _spec(tiny_model, {"kl": {"coef": 0.1, "adaptive": {"target": 1e-6, "gain": 1.0}}})
    one, other = _learner(spec), _learner(spec)
    for step in range(2):
        one.step(_step(spec, step))
    state = one.state()
    mine = torch.tensor([coef, 0.0, 1.0], dtype=torch.float64)
    other.restore(replace(state, tensors=state.tensors | {"coefficients": mine}))
    assert other.kl_coef == coef != one.kl_coef
    assert other.step(_step(spec, 2)).metrics["kl_coef"] == coef
    one.step(_step(spec, 2))
    assert not _same(one.state(), other.state())


def test_restore_when_the_process_was_killed_then_the_next_steps_are_the_same_bits(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = _spec(tiny_model)
    whole, resumed = _learner(spec), _learner(spec)
    for step in range(2):
        whole.step(_step(spec, step))
    checkpoints = Checkpoints(tmp_path, spec)
    checkpoints.save(CheckpointContents(2, {"shared": whole.state()}, []))
    found = Checkpoints(tmp_path, spec).load()
    assert found is not None
    resumed.restore(found.learners["shared"])
    for step in range(2, 4):
        one, other = whole.step(_step(spec, step)), resumed.step(_step(spec, step))
        assert one.metrics == other.metrics
    assert whole.kl_coef != 0.1
    assert _same(whole.state(), resumed.state())


def test_restore_when_the_checkpoint_is_of_an_older_version_then_begins_with_the_specs(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model)
    learner = _learner(spec)
    learner.step(_step(spec, 0))
    state = learner.state()
    tensors = {name: t for name, t in state.tensors.items() if name != "coefficients"}
    learner.restore(replace(state, tensors=tensors))
    assert learner.kl_coef == 0.1


def test_state_when_no_target_is_set_then_holds_no_coefficients(tiny_model: Path) -> None:
    assert "coefficients" not in _learner(_spec(tiny_model, {})).state().tensors


async def test_reward_when_its_kl_follows_a_target_then_is_taxed_by_the_present_coefficient(
    tiny_model: Path, tmp_path: Path
) -> None:
    kl = {"coef": 0.5, "where": "reward", "estimator": "k1", "adaptive": {"target": 1e-3}}
    spec = _spec(tiny_model, {"kl": kl})
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        learner = team.by_policy["shared"]
        group = make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0])
        before = team.credit("shared", [group])[0].advantages
        state = learner.state()
        huge = torch.tensor([1e9, 0.0, 1.0], dtype=torch.float64)
        learner.restore(replace(state, tensors=state.tensors | {"coefficients": huge}))
        after = team.credit("shared", [group])[0].advantages
    finally:
        team.close()
    assert before != after


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"kl": {"adaptive": {"target": 0.1}}}, "a coefficient of 0 stays 0"),
        ({"entropy_coef": 0.2, "adaptive_entropy": {"target": 1.0}}, "above .* max_coef, 0.1"),
    ],
)
def test_spec_when_a_coefficient_could_never_follow_then_is_refused(
    tiny_model: Path, loss: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        _spec(tiny_model, loss)


def _same(one: LearnerState, other: LearnerState) -> bool:
    return one.tensors.keys() == other.tensors.keys() and all(
        torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items()
    )
