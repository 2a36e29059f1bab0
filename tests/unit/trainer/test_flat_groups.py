"""Groups without variance: what counts as trained where the loss has more than advantages."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec, make_group

from troupe.runtime.step_report.trainer import TrainerPart
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.checkpoint.files import Checkpoints
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.report import step_report

ENTROPY: dict[str, Any] = {"loss": {"entropy_coef": 0.1}}
KL: dict[str, Any] = {"loss": {"kl": {"coef": 0.1}}}


def _batch(step: int, rewards: list[float]) -> Batch:
    groups = [make_group(random.Random(n), step=step, task=n, rewards=rewards) for n in range(2)]
    for group in groups:
        for candidate in group.candidates:
            candidate.trajectory = candidate.index
    return Batch(step, {"shared": groups}, {})


async def _flat_step(spec: JobSpec, run_dir: Path) -> tuple[TrainerPart, bool]:
    """The report of a flat step after one that taught, and whether it moved the policy."""
    team = await Learners.load(spec, run_dir, device="cpu", threads=1)
    try:
        taught = step_report(it := _batch(0, [1.0, 0.0, 0.0, 0.0]), await team.learn(it), 1.0)
        assert not taught.is_flat
        assert (taught.groups_trained, taught.groups_zero_variance) == (2, 0)
        own = team.by_policy["shared"].model.trainable()
        before = {name: p.detach().clone() for name, p in own.items()}
        report = step_report(it := _batch(1, [1.0] * 4), await team.learn(it), 1.0)
        return report, not all(torch.equal(before[name], p) for name, p in own.items())
    finally:
        team.close()


@pytest.mark.parametrize(
    ("algorithm", "trained"),
    [
        ({}, 0),
        (ENTROPY, 2),
        (KL, 2),
        ({"loss": {"kl": {"coef": 0.1, "where": "reward"}}, "kind": "grpo"}, None),
        ({**KL, "filters": {"zero_variance": True}}, 0),
        ({**ENTROPY, "kind": "best_of_k"}, 0),
    ],
    ids=["plain", "entropy", "kl", "kl-in-reward", "filtered", "loss-without-the-term"],
)
async def test_flat_groups_when_a_term_has_a_gradient_without_them_then_count_as_trained(
    tiny_model: Path, tmp_path: Path, algorithm: dict[str, Any], trained: int | None
) -> None:
    report, has_moved = await _flat_step(
        job_spec(tiny_model, algorithm={"group_size": 4, **algorithm}), tmp_path
    )
    if trained is None:  # what is taken off for KL differs, so the rewards do
        assert (report.groups_zero_variance, report.groups_trained) == (0, 2)
        return
    assert report.is_flat
    assert (report.groups_zero_variance, report.groups_trained) == (2, trained)
    assert has_moved is (trained > 0)
    assert (report.loss is not None) is has_moved


async def test_flat_step_when_its_entropy_bonus_is_off_then_momentum_moves_nothing(
    tiny_model: Path, tmp_path: Path
) -> None:
    loss = {"entropy_coef": 0.1, "adaptive_entropy": {"target": 1e-6, "max_coef": 0.1}}
    algorithm = {"group_size": 4, "loss": loss}
    _, has_moved = await _flat_step(job_spec(tiny_model, algorithm=algorithm), tmp_path)
    assert not has_moved


@pytest.mark.parametrize("is_filtered", [False, True])
async def test_flat_steps_when_they_come_first_then_the_warm_up_is_whole(
    tiny_model: Path, tmp_path: Path, is_filtered: bool
) -> None:
    algorithm = {"group_size": 4, "filters": {"zero_variance": is_filtered}}
    spec = job_spec(tiny_model, algorithm=algorithm)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        for step in range(3):
            await team.learn(_batch(step, [1.0] * 4))
        optimizer = team.by_policy["shared"].state().optimizer_step
        await team.learn(_batch(3, [1.0, 0.0, 0.0, 0.0]))
        assert (optimizer, team.by_policy["shared"].state().optimizer_step) == (0, 1)
    finally:
        team.close()


async def test_flat_step_when_there_is_a_critic_then_its_numbers_are_reported(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = job_spec(
        tiny_model,
        algorithm={"kind": "ippo", "group_size": 4, "critic": {"kind": "head", "clip": None}},
    )
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        report = step_report(it := _batch(0, [1.0] * 4), await team.learn(it), 1.0)
    finally:
        team.close()
    # Nothing was expected and 1 came everywhere: no advantage after whitening, and an error of 1.
    assert report.is_flat
    assert (report.groups_zero_variance, report.groups_trained) == (2, 0)
    assert report.value_mean == 0.0
    assert 0.0 < report.value_loss <= 1.0
    assert report.loss is None


class _Said:
    """Events of a job."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def emit(self, kind: str, *_: Any, **__: Any) -> None:
        self.kinds.append(kind)

    async def read(self, *_: Any, **__: Any) -> list[Any]:
        return []


async def test_flat_step_when_the_trainers_policy_is_not_to_learn_then_nothing_is_said(
    tiny_model: Path, tmp_path: Path
) -> None:
    policy: dict[str, Any] = {"model": str(tiny_model), "train": {"kind": "lora", "rank": 4}}
    spec = job_spec(
        tiny_model,
        policies={"shared": policy, "partner": {**policy, "frozen": True}},
        agents={"tool": {"policy": "shared"}, "planner": {"policy": "partner"}},
        trainer={"per_policy": True},
    )
    said: Any = _Said()
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1, policy="partner")
    try:
        checkpoints = Checkpoints(tmp_path, spec, policy="partner")
        checkpointing = Checkpointing(spec, team, checkpoints, said)
        it = Batch(0, {"partner": []}, {})
        report = step_report(it, await team.learn(it), 1.0, policy="partner")
        await checkpointing.emit_flat(report, it)
    finally:
        team.close()
    assert (report.is_flat, said.kinds) == (None, [])
