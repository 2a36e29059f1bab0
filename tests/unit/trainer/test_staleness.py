"""Asynchronous mode: the bound on what may be trained, and its correction."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
from trainer_data import VOCABULARY, groups_of_step, job_spec, make_group

from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.spec.issues import SpecInvalidError
from troupe.spec.load import parse_spec
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.report import step_report
from troupe_trainer.learn.validation import Expected, fault, oldest_version
from troupe_trainer.samples import credit


def _group(version: int, step: int = 5) -> pb.Group:
    return make_group(random.Random(version), step=step, version=version)


@pytest.mark.parametrize(
    ("version", "bound", "reason"),
    [
        (5, 0, None),
        (4, 0, "stale_version"),
        (4, 1, None),
        (3, 1, "stale_version"),
        (3, 2, None),
        (6, 2, "stale_version"),
    ],
)
def test_fault_when_a_group_is_older_than_the_bound_then_it_is_stale(
    version: int, bound: int, reason: str | None
) -> None:
    expected = Expected("unit-1", "shared", 5, 5, VOCABULARY, bound)
    assert fault(_group(version), expected) == reason


def test_fault_when_only_some_tokens_are_too_old_then_the_group_is_stale() -> None:
    group = _group(5)
    group.candidates[1].version_spans.add(policy_version=3, num_tokens=1)
    group.candidates[1].version_spans.add(policy_version=5, num_tokens=1)
    assert oldest_version(group) == 3
    assert fault(group, Expected("unit-1", "shared", 5, 5, VOCABULARY, 1)) == "stale_version"
    assert fault(group, Expected("unit-1", "shared", 5, 5, VOCABULARY, 2)) is None


def test_spec_when_asynchronous_without_the_correction_then_says_what_to_add() -> None:
    document: dict[str, Any] = job_spec(Path("m")).model_dump(mode="json")
    with pytest.raises(SpecInvalidError, match=r"importance: \{\}"):
        parse_spec(document | {"max_staleness": 1})
    document["algorithm"]["loss"]["importance"] = {}
    assert parse_spec(document | {"max_staleness": 1}).max_staleness == 1


def test_step_when_tokens_were_sampled_by_other_weights_then_the_correction_is_measured(
    tiny_model: Path,
) -> None:
    spec = job_spec(tiny_model, algorithm={"group_size": 4, "loss": {"importance": {"cap": 1.5}}})
    algorithm = AtGrpo(spec.algorithm)
    learner = Learner("shared", spec, algorithm, device="cpu")
    group = make_group(random.Random(0), step=1, version=1)
    for candidate in group.candidates:
        tokens = [*group.prompts[0].token_ids, *candidate.token_ids]
        scores = learner.model.score(tokens)[-len(candidate.token_ids) :]
        # The engine was half as sure: the weight is 2 for every token, cut to 1.5.
        candidate.rollout_logprobs[:] = [score - math.log(2.0) for score in scores]
    credited = credit(group, algorithm.advantages(group_outcome(group)), 1.0)
    metrics = learner.step([credited], 1).metrics
    assert metrics["importance_mean"] == pytest.approx(2.0, rel=1e-3)
    assert metrics["importance_active"] == pytest.approx(1.0)
    assert metrics["importance_capped"] == pytest.approx(1.0)
    assert metrics["parity_ratio"] == pytest.approx(1.0, rel=1e-2)
    assert "parity_ratio" not in learner.step([credited], 2).metrics


async def test_report_when_groups_are_old_then_says_how_old(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = job_spec(tiny_model)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        groups = groups_of_step(3)
        for group in groups[:1]:
            group.policy_version = 2
        batch = Batch(3, {"shared": groups}, {"stale_version": 2}, overlap_s=0.25)
        report = step_report(batch, await team.learn(batch), 1.0)
    finally:
        team.close()
    assert report.staleness == 1
    assert report.staleness_mean == pytest.approx(1 / 4)
    assert report.overlap_s == 0.25
    assert report.groups_dropped == {"stale_version": 2}
