"""Groups with images through the trainer's whole step, alone and over ranks."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks_world import load, ranks_with
from trainer_data import job_spec
from vision_data import KINDS, image_group, random_image, save_vision_model

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import group_outcome
from troupe.episodes.build import refuse_what_cannot_spread
from troupe.errors import InvalidArgumentError
from troupe.spec.batch import BatchSpec
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.canary import canary_of
from troupe_trainer.learn.critics import Critics
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.validation import Expected, fault
from troupe_trainer.model.packing import lay_out, pack
from troupe_trainer.model.shares import deal, from_arrays, to_arrays
from troupe_trainer.model.vision import vision_model
from troupe_trainer.samples import CreditedGroup, credit


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(tmp_path_factory.mktemp(kind), kind)


def _spec(
    model: Path,
    *,
    train: dict[str, Any] | None = None,
    dtype: str = "float32",
    **algorithm: Any,
) -> JobSpec:
    policy = {
        "model": str(model),
        "dtype": dtype,
        "train": train or {"kind": "lora", "rank": 4},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    }
    return job_spec(
        model,
        policies={"shared": policy},
        algorithm={"group_size": 4} | algorithm,
        batch={"tokens_per_row": 48, "rows_per_microbatch": 1},
    )


def _credited(spec: JobSpec, model: Path, kind: str, step: int = 0) -> list[CreditedGroup]:
    """Four groups with no, one, two and one repeated image, received as valid."""
    rng = random.Random(step)
    one, two = random_image(rng, kind, 2, 2), random_image(rng, kind, 1, 3)
    algorithm, vision = AtGrpo(spec.algorithm), vision_model(str(model))
    expected = Expected("unit-1", "shared", step, step, 96, vision=vision)
    credited: list[CreditedGroup] = []
    for task, images in enumerate([[], [one], [two, one], [one]]):
        group = image_group(rng, kind, images, step=step, task=task)
        assert fault(group, expected) is None
        credited.append(credit(group, algorithm.advantages(group_outcome(group)), 1.0))
    return credited


def _learner(spec: JobSpec, **more: Any) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", **more)


@pytest.mark.parametrize("train", [{"kind": "lora", "rank": 4}, {"kind": "full", "vision": True}])
def test_step_when_rollouts_are_the_models_own_then_the_ratio_is_1_and_weights_move(
    kind: str, model: Path, train: dict[str, Any]
) -> None:
    spec = _spec(model, train=train)
    learner = _learner(spec)
    groups = _credited(spec, model, kind)
    samples = [s for g in groups for p in g.prompts for s in p.samples]
    for group in groups:  # sampled by these very weights, each prompt computed alone
        for prompt in group.prompts:
            (batch,) = pack([prompt], BatchSpec())
            logprobs = learner.model.logprobs(batch, want_entropy_grad=False)[0].tolist()
            place = 0
            for sample in batch.samples:
                size = len(sample.token_ids)
                sample.rollout_logprobs[:] = logprobs[place : place + size]  # type: ignore[index]
                place += size
    before = {name: p.detach().clone() for name, p in learner.model.trainable().items()}

    outcome = learner.step(groups, 0)

    assert outcome.trained_tokens == sum(len(s.token_ids) for s in samples)
    assert outcome.metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert outcome.metrics["kl_rollout"] == pytest.approx(0.0, abs=1e-5)
    after = learner.model.trainable()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    if train.get("vision"):
        assert any("visual" in name for name in moved)


def test_step_when_the_images_are_others_then_the_weights_are_others(
    kind: str, model: Path
) -> None:
    spec = _spec(model)
    first, second = _learner(spec), _learner(spec)
    groups = _credited(spec, model, kind)
    first.step(groups, 0)
    for group in groups:
        for prompt in group.prompts:
            images: Any = prompt.images
            images[:] = [
                random_image(
                    random.Random(77), kind, i.height // _side(kind), i.width // _side(kind)
                )
                for i in images
            ]
    second.step(groups, 0)

    pairs = zip(first.state().tensors.values(), second.state().tensors.values(), strict=True)
    assert any(not torch.equal(one, other) for one, other in pairs)


def _side(kind: str) -> int:
    return 28 if kind == "qwen2_5_vl" else 32


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("sees", [False, True])
def test_reference_when_weights_have_moved_then_is_the_model_as_it_began(
    kind: str, model: Path, train: str, sees: bool
) -> None:
    spec = _spec(
        model, train={"kind": train, "vision": sees}, loss={"kl": {"coef": 0.1, "where": "loss"}}
    )
    learner, fresh = _learner(spec), _learner(spec)
    learner.step(_credited(spec, model, kind), 0)
    outcome = learner.step(_credited(spec, model, kind, 1), 1)
    assert outcome.metrics["kl_ref"] > 0

    groups = _credited(spec, model, kind, 2)
    moved, began = (np.array(x.log_ratios(groups)) for x in (learner, fresh))
    assert np.abs(moved).max() > 1e-3
    assert np.abs(began).max() < 1e-5


def test_layout_when_the_tower_is_trained_then_patches_count_and_frozen_they_do_not(
    kind: str, model: Path
) -> None:
    vision = vision_model(str(model))
    rng = random.Random(5)
    groups = [
        image_group(rng, kind, [random_image(rng, kind, 3, 3)], task=task) for task in range(9)
    ]
    prompts = [p for g in groups for p in credit(g, [1.0] * 4, 1.0).prompts]
    batch = BatchSpec(tokens_per_row=128, rows_per_microbatch=1)

    frozen = lay_out(prompts, batch)
    trained = lay_out(prompts, batch, trained_vision=vision)

    assert len(frozen) < len(trained)
    for blocks in trained:  # each image is 36 patches
        cost = sum(len(b.tokens_B) + 36 for b in blocks)
        assert cost <= 128 or len(blocks) == 1
    assert sum(len(blocks) for blocks in trained) == sum(len(blocks) for blocks in frozen)


def test_share_when_it_travels_then_has_its_images(kind: str, model: Path) -> None:
    spec = _spec(model)
    prompts = [p for g in _credited(spec, model, kind) for p in g.prompts]
    dealt = deal([lay_out(prompts, spec.batch)], [9], [4], 2)

    for shares in dealt.shares:
        arrays = to_arrays(shares)
        (got,) = from_arrays(arrays)
        pairs = list(zip(got.microbatches(), shares[0].microbatches(), strict=True))
        blocks = [block for (batch, _), _ in pairs for block in batch.image_blocks]
        digests = {image.digest for block in blocks for image in block.images}
        assert len(digests) == len(arrays["image_widths"]), "each once"
        for (mine, _), (theirs, _) in pairs:
            assert mine.tokens_M.tolist() == theirs.tokens_M.tolist()
            assert [(p.tokens, p.num_prompt, list(p.images)) for p in mine.image_blocks] == [
                (p.tokens, p.num_prompt, list(p.images)) for p in theirs.image_blocks
            ]


@pytest.mark.parametrize("train", ["lora", "full"])
def test_step_when_spread_over_two_ranks_then_learns_what_one_process_learns(
    tmp_path: Path, train: str
) -> None:
    kind = "qwen2_5_vl"
    model = save_vision_model(tmp_path, kind)
    spec = _spec(model, train={"kind": train})
    with ranks_with(spec) as ranks:
        spread, alone = _learner(spec, ranks=ranks), _learner(spec)
        for step in range(2):
            groups = _credited(spec, model, kind, step)
            got, want = (x.step(groups, step) for x in (spread, alone))
            for name in ("loss", "grad_norm", "ratio_max"):
                assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5)
        canary = canary_of(alone.model)
        scores = [x.model.score(canary.token_ids, canary.images) for x in (spread, alone)]
        assert scores[0] == pytest.approx(scores[1], abs=2e-4)
        one, other = spread.state().tensors, alone.state().tensors
        assert one.keys() == other.keys()
        assert all(torch.allclose(one[n], other[n], atol=2e-4) for n in one if "param" in n)
        halved = _spec(model, train={"kind": train}, dtype="bfloat16")
        load(halved, ranks)
        groups = _credited(halved, model, kind)
        got, want = (x.step(groups, 0) for x in (_learner(halved, ranks=ranks), _learner(halved)))
        for name in ("entropy", "kl_rollout"):
            assert got.metrics[name] == pytest.approx(want.metrics[name], rel=0.02), name


def test_refuse_when_a_trained_tower_would_be_spread_then_names_it(model: Path) -> None:
    spec = _spec(model, train={"kind": "lora", "vision": True})
    with pytest.raises(SpecInvalidError, match="'shared' trains its vision tower"):
        refuse_what_cannot_spread(spec, AtGrpo(spec.algorithm), 2)


def test_adapter_when_targets_name_no_layer_of_a_trained_tower_then_is_refused(
    model: Path,
) -> None:
    train = {"kind": "lora", "vision": True, "targets": ["q_proj", "v_proj"]}
    with pytest.raises(InvalidArgumentError, match="name no layer of its vision tower"):
        _learner(_spec(model, train=train))


def test_critics_when_a_policy_sees_then_are_refused_by_name(kind: str, model: Path) -> None:
    spec = _spec(model, kind="ippo", critic={"kind": "head"})
    learner = _learner(_spec(model))
    with pytest.raises(InvalidArgumentError, match="the model of policy 'shared' takes images"):
        Critics(spec, "own", {"shared": learner}, device="cpu")
