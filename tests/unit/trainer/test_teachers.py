"""A policy's frozen teacher in the trainer: what it computes, what is refused, what is shared."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_world import build_planner
from ranks_world import ranks_with
from trainer_data import groups_of_step, job_spec, make_group, save_tiny_model

from troupe.algorithms.distill import Distill
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.teacher import load_teacher
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import pack
from troupe_trainer.samples import CreditedGroup, credit

DISTILL: dict[str, Any] = {"kind": "distill", "group_size": 4}
FAST = {"learning_rate": 0.01, "warmup_steps": 0}


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another random model of the same vocabulary, with a layer more."""
    return save_tiny_model(tmp_path_factory.mktemp("large"), num_layers=3)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A student and a teacher with tokenizers."""
    folder = tmp_path_factory.mktemp("pair")
    return build_planner(folder / "student", steps=4), build_planner(folder / "teacher", steps=12)


def _frozen(model: Path) -> PolicyModel:
    return PolicyModel("p", PolicySpec(model=str(model)), seed=0, device="cpu", is_frozen=True)


def _learner(spec: JobSpec, teacher: Path, **more: Any) -> Learner:
    algorithm = Distill(spec.algorithm)
    return Learner("shared", spec, algorithm, device="cpu", teacher=_frozen(teacher), **more)


def _credited(step: int) -> list[CreditedGroup]:
    plain = [credit(group, [0.0] * 4, 0.7) for group in groups_of_step(step)]
    return [_taught(group) for group in plain]


def _taught(group: CreditedGroup) -> CreditedGroup:
    return CreditedGroup(
        group.record, group.advantages, group.prompts, group.num_tokens, is_taught=True
    )


def test_teacher_when_it_computes_a_tree_then_is_transformers_on_each_sequence_alone(
    tiny_model: Path, large: Path
) -> None:
    learner = _learner(job_spec(tiny_model, algorithm=DISTILL), large)
    prompts = [p for group in _credited(0) for p in group.prompts]
    teacher = _frozen(large)
    for batch in pack(prompts, job_spec(tiny_model).batch):
        found = learner.model.teacher_logprobs(batch).numpy()
        assert not learner.model.teacher_logprobs(batch).requires_grad
        for number, sample in enumerate(batch.samples):
            prompt = next(p.prompt for p in prompts if any(s is sample for s in p.samples))
            row = torch.tensor([[*prompt, *sample.token_ids]], dtype=torch.long)
            with torch.no_grad():
                logits = teacher.module(input_ids=row).logits[0] / 0.7
            table = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
            want = table.gather(1, row[0, len(prompt) :, None])[:, 0].numpy()
            assert found[batch.sequence_N == number] == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_learner_when_its_samples_are_its_own_then_reports_the_divergence_by_token(
    kind: str, tiny_model: Path, large: Path
) -> None:
    policy = {"model": str(tiny_model), "train": {"kind": kind}, "optimizer": FAST}
    learner = _learner(job_spec(tiny_model, algorithm=DISTILL, policies={"shared": policy}), large)
    groups = _credited(0)
    batches = list(pack([p for g in groups for p in g.prompts], job_spec(tiny_model).batch))
    gaps = [b.rollout_logprobs_N - learner.model.teacher_logprobs(b).numpy() for b in batches]
    before = {n: p.detach().clone() for n, p in learner.model.trainable().items()}
    frozen = {n: p.detach().clone() for n, p in learner.model.teacher.module.named_parameters()}  # type: ignore[union-attr]
    outcome = learner.step(groups, 0)
    assert outcome.metrics["kl_teacher"] == pytest.approx(np.concatenate(gaps).mean(), abs=1e-5)
    assert outcome.trained_groups == len(groups)
    after = learner.model.trainable()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    kept = dict(learner.model.teacher.module.named_parameters())  # type: ignore[union-attr]
    assert all(torch.equal(frozen[name], kept[name]) for name in frozen)
    assert not any(name.startswith("teacher") for name in learner.state().tensors)


def test_learner_when_spread_over_two_ranks_then_learns_as_one_process(
    pair: tuple[Path, Path],
) -> None:
    student, teacher = map(str, pair)
    policy = {"model": student, "teacher": teacher, "train": {"kind": "full"}, "optimizer": FAST}
    spec = job_spec(pair[0], algorithm=DISTILL, policies={"shared": policy})
    with ranks_with(spec) as ranks:
        spread = _learner(spec, pair[1], ranks=ranks)
        alone = _learner(spec, pair[1])
        for step in range(2):
            got, want = (learner.step(_credited(step), step) for learner in (spread, alone))
            for name in ("loss", "grad_norm", "kl_teacher"):
                assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5)
        one, other = spread.state().tensors, alone.state().tensors
        names = [name for name in other if name.startswith("param/")]
        assert all(torch.allclose(one[n], other[n], atol=2e-4) for n in names)


def _batch(step: int) -> Batch:
    return Batch(step, {"shared": groups_of_step(step)}, {})


async def _load(spec: JobSpec, folder: Path) -> Learners:
    return await Learners.load(spec, folder, device="cpu", threads=1)


async def test_team_when_policies_name_one_teacher_then_it_is_in_memory_once(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    student, teacher = map(str, pair)
    each = {"model": student, "teacher": teacher, "optimizer": FAST}
    policies = {
        "tool": {**each, "train": {"kind": "lora", "rank": 4}},
        "planner": {**each, "train": {"kind": "full"}},
    }
    agents = {"tool": {"policy": "tool"}, "planner": {"policy": "planner"}}
    team = await _load(
        job_spec(pair[0], algorithm=DISTILL, policies=policies, agents=agents), tmp_path
    )
    try:
        models = {name: learner.model for name, learner in team.by_policy.items()}
        held = [
            {id(p) for p in models[name].teacher.module.parameters()}  # type: ignore[union-attr]
            for name in ("tool", "planner")
        ]
        assert held[0] == held[1]
    finally:
        team.close()


def test_teacher_when_it_is_the_base_under_the_adapter_then_is_in_memory_once(
    tiny_model: Path,
) -> None:
    model = _learner(job_spec(tiny_model, algorithm=DISTILL), tiny_model).model
    assert model.teacher is not None
    base = {id(parameter) for parameter in model.module.parameters()}
    assert {id(parameter) for parameter in model.teacher.module.parameters()} < base


def test_step_when_a_ticket_was_learnt_from_early_then_has_the_bits_of_one_without(
    tiny_model: Path, large: Path
) -> None:
    spec = job_spec(tiny_model, algorithm=DISTILL)
    early, late = (_learner(spec, large, held_bytes=1 << 20) for _ in range(2))
    early.ahead(0, _credited(0)[:2])
    got, want = (learner.step(_credited(0), 0) for learner in (early, late))
    assert got.metrics == want.metrics
    one, other = early.state().tensors, late.state().tensors
    assert all(torch.equal(one[name], other[name]) for name in other)


async def test_job_when_restored_in_the_middle_then_ends_with_the_same_bits(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    student, teacher = map(str, pair)
    policy = {"model": student, "teacher": teacher, "optimizer": FAST}
    spec = job_spec(pair[0], algorithm={**DISTILL, "minibatches": 2}, policies={"shared": policy})
    whole, killed = await _load(spec, tmp_path), await _load(spec, tmp_path)
    resumed = await _load(spec, tmp_path)
    try:
        for step in range(4):
            await whole.learn(_batch(step))
        for step in range(2):
            await killed.learn(_batch(step))
        resumed.restore(killed.states(), killed.baselines())
        learned = [await resumed.learn(_batch(step)) for step in range(2, 4)]
        assert all(step.outcomes["shared"].metrics["kl_teacher"] != 0.0 for step in learned)
        got, want = (t.states()["shared"].tensors for t in (resumed, whole))
        assert all(torch.equal(got[name], want[name]) for name in want)
    finally:
        for team in (whole, killed, resumed):
            team.close()


async def test_step_when_groups_have_one_candidate_then_is_not_flat(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    policy = {"model": str(pair[0]), "teacher": str(pair[1]), "optimizer": FAST}
    spec = job_spec(pair[0], algorithm={**DISTILL, "group_size": 1}, policies={"shared": policy})
    team = await _load(spec, tmp_path)
    try:
        groups = [make_group(random.Random(n), task=n, size=1, rewards=[0.0]) for n in range(3)]
        learned = await team.learn(Batch(0, {"shared": groups}, {}))
        assert team.min_candidates == 1
        assert learned.outcomes["shared"].trained_groups == 3
        assert all(group.has_signal for group in learned.credited["shared"])
    finally:
        team.close()


def test_teacher_when_its_vocabulary_is_another_then_is_refused_by_name(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(pair[1], tmp_path / "other")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["somewhere"] = vocabulary.pop("U")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    spec = PolicySpec(model=str(pair[0]), teacher=str(folder))
    with pytest.raises(InvalidArgumentError, match="2 tokens differ, the first is 'U'") as info:
        load_teacher("solver", spec, device="cpu")
    assert info.value.pointer == "/policies/solver/teacher"
    assert "in the policy's, not there in the teacher's)" in info.value.message


def test_teacher_when_it_is_not_there_then_is_refused_by_name(pair: tuple[Path, Path]) -> None:
    spec = PolicySpec(model=str(pair[0]), teacher=str(pair[1].parent / "none"))
    with pytest.raises(
        InvalidArgumentError, match=r"tokenizer of '.*none' can't be loaded"
    ) as info:
        load_teacher("solver", spec, device="cpu")
    assert info.value.pointer == "/policies/solver/teacher"


def test_teacher_when_its_output_is_smaller_than_the_policys_then_is_refused(
    tiny_model: Path, pair: tuple[Path, Path]
) -> None:
    student, teacher = _frozen(pair[0]), _frozen(tiny_model)
    few, many = sorted((student, teacher), key=lambda model: model.vocabulary_size)
    assert few.vocabulary_size < many.vocabulary_size
    with pytest.raises(InvalidArgumentError, match=f"output of {few.vocabulary_size} tokens"):
        many.keep_teacher(few)
