"""A teacher that rollout replicas serve teaches what the same one in the trainer does."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_world import InProcess, build_planner, plan_path_spec
from ranks_world import ranks_with

from troupe.algorithms.distill import Distill
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learned
from troupe_trainer.model.packing import pack
from troupe_trainer.samples import CreditedGroup

ROUNDING = 1e-4
"""What the canary of a push allows between an engine's log probabilities and the trainer's."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A student and a teacher."""
    folder = tmp_path_factory.mktemp("pair")
    return build_planner(folder / "student", steps=4), build_planner(folder / "teacher", steps=30)


def _spec(pair: tuple[Path, Path], *, is_served: bool, **changes: Any) -> JobSpec:
    policy: dict[str, Any] = {
        "model": str(pair[0]),
        "teacher": str(pair[1]),
        "train": {"kind": "lora", "rank": 4},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    }
    if is_served:
        policy["teacher_replicas"] = 1
    algorithm = {"kind": "distill", "params": {"sampling": "tree"}}
    return plan_path_spec(pair[0], algorithm, policies={"shared": policy | changes})


async def _step(job: InProcess) -> Learned:
    try:
        _, learned, report = await job.step()
        assert not report.is_flat
        return learned
    finally:
        await job.close()


def _samples(groups: list[CreditedGroup], spec: JobSpec) -> list[Any]:
    return list(pack([p for group in groups for p in group.prompts], spec.batch))


async def test_step_when_the_teacher_is_served_then_is_that_of_a_teacher_in_the_trainer(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    spec = _spec(pair, is_served=True)
    served = await InProcess.start(spec, tmp_path)
    assert served.team.by_policy["shared"].model.teacher is None
    beside = await InProcess.start(_spec(pair, is_served=False), tmp_path)
    got, want = await _step(served), await _step(beside)
    groups = got.credited["shared"]
    ids = [[list(c.token_ids) for c in g.record.candidates] for g in groups]
    assert ids == [
        [list(c.token_ids) for c in g.record.candidates] for g in want.credited["shared"]
    ]
    teacher = beside.team.by_policy["shared"].model
    for batch in _samples(groups, spec):
        gap = batch.teacher_logprobs_N - teacher.teacher_logprobs(batch).numpy()
        assert np.abs(gap).max() < ROUNDING
    one, other = (learned.outcomes["shared"].metrics for learned in (got, want))
    assert one["kl_teacher"] != 0.0
    for name in ("loss", "grad_norm", "kl_teacher"):
        assert one[name] == pytest.approx(other[name], rel=1e-3, abs=ROUNDING)


TAUGHT_SO: dict[str, dict[str, Any]] = {
    "one episode": {"group_size": 1},
    "whole episodes and rewards": {"params": {"reward_coef": 0.5}},
    "trees and rewards": {"params": {"sampling": "tree", "reward_coef": 0.5}},
    "truncated ones left out": {"filters": {"truncated": True}},
    "by sequence, old weights": {"aggregation": "sequence", "loss": {"importance": {}}},
    "one policy at a time": {"alternate": {"order": ["tool", "planner"], "every": 1}},
}


@pytest.mark.parametrize("case", TAUGHT_SO)
async def test_policies_when_each_has_a_teacher_then_learn_the_same_from_it_in_either_place(
    case: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    def spec(*, is_served: bool) -> JobSpec:
        policy = {
            "model": str(pair[0]),
            "teacher": str(pair[1]),
            "train": {"kind": "lora", "rank": 4},
            "optimizer": {"learning_rate": 0.001, "warmup_steps": 0},
            **({"teacher_replicas": 1} if is_served else {}),
        }
        algorithm = {"kind": "distill", **TAUGHT_SO[case]}
        policies = {"tool": policy, "planner": policy | {"train": {"kind": "full"}}}
        agents = {name: {"policy": name} for name in policies}
        return plan_path_spec(pair[0], algorithm, policies=policies, agents=agents)

    served, beside = [
        await _step(await InProcess.start(spec(is_served=is_served), tmp_path))
        for is_served in (True, False)
    ]
    trained = {p: o.trained_tokens for p, o in served.outcomes.items() if o.trained_tokens}
    assert trained
    for policy in trained:
        one, other = (learned.outcomes[policy].metrics for learned in (served, beside))
        assert beside.outcomes[policy].trained_tokens == trained[policy]
        for name in ("loss", "grad_norm", "kl_teacher"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=ROUNDING)


async def test_learner_when_spread_over_two_ranks_then_each_has_what_the_replicas_thought(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    spec = _spec(pair, is_served=True, train={"kind": "full"})
    groups = list((await _step(await InProcess.start(spec, tmp_path))).credited["shared"])
    with ranks_with(spec) as ranks:
        spread, alone = (
            Learner("shared", spec, Distill(spec.algorithm), device="cpu", **more)
            for more in ({"ranks": ranks}, {})
        )
        got, want = (learner.step(groups, 0) for learner in (spread, alone))
        for name in ("loss", "grad_norm", "kl_teacher"):
            assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5)
        one, other = spread.state().tensors, alone.state().tensors
        assert all(torch.allclose(one[n], other[n], atol=2e-4) for n in other if "param/" in n)


async def test_teacher_when_served_with_another_vocabulary_then_the_trainer_refuses_it(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(pair[1], tmp_path / "other")
    tokenizer = (folder / "tokenizer.json").read_text()
    assert '"U"' in tokenizer
    (folder / "tokenizer.json").write_text(tokenizer.replace('"U"', '"somewhere"'))
    for spec in (_spec((pair[0], folder), is_served=is_served) for is_served in (True, False)):
        with pytest.raises(InvalidArgumentError, match="has another vocabulary") as refused:
            await InProcess.start(spec, tmp_path)
        assert refused.value.pointer == "/policies/shared/teacher"


async def test_teacher_when_served_with_fewer_tokens_then_the_trainer_refuses_it(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(pair[1], tmp_path / "fewer")
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] -= 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        InvalidArgumentError, match="Take a teacher with at least as many"
    ) as refused:
        await InProcess.start(_spec((pair[0], folder), is_served=True), tmp_path)
    assert refused.value.pointer == "/policies/shared/teacher"
