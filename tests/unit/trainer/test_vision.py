"""A vision-language policy computes of packed prompts what its model does of each alone."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec
from transformers import AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from vision_data import (
    IMAGE,
    KINDS,
    image_group,
    image_prompt,
    pixels_of,
    random_image,
    save_vision_model,
)

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import LORA_TARGETS
from troupe.spec.batch import BatchSpec
from troupe.spec.policy import PolicySpec
from troupe.vision.patches import patches_of
from troupe_trainer.model import packing, vision
from troupe_trainer.model.kernels import PLAIN, Kernels
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Microbatch, pack
from troupe_trainer.samples import PromptSamples, credit

TEMPERATURE = 0.9


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(tmp_path_factory.mktemp(kind), kind)


def _policy(model: Path, train: dict[str, Any] | None = None, **more: Any) -> PolicySpec:
    body = {"model": str(model), "train": train or {"kind": "lora", "rank": 4, "alpha": 8}}
    return job_spec(model, policies={"shared": body | more}).policies["shared"]


def _loaded(
    model: Path, train: dict[str, Any] | None = None, kernels: Kernels = PLAIN
) -> PolicyModel:
    """A policy whose adapter is not zero."""
    policy = PolicyModel("shared", _policy(model, train), seed=0, device="cpu", kernels=kernels)
    torch.manual_seed(5)
    for name, parameter in policy.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return policy


def _prompts(kind: str) -> list[PromptSamples]:
    """Prompts with one image, two, one that is repeated, and none; of different lengths."""
    rng = random.Random(1)
    one, two, three = (random_image(rng, kind, *s) for s in ((3, 3), (2, 4), (1, 2)))
    groups = [
        image_group(rng, kind, images, task=task)
        for task, images in enumerate([[three], [one], [two, one], [], [three, three]])
    ]
    return [p for g in groups for p in credit(g, [1.0] * 4, TEMPERATURE).prompts]


class _Alone:
    """transformers' own pass over one sequence, with the policy's weights."""

    def __init__(self, policy: PolicyModel, model: Path) -> None:
        self._processor = Qwen2VLImageProcessorPil.from_pretrained(str(model))
        self._plain: Any = AutoModelForImageTextToText.from_pretrained(model)
        if policy.is_lora:
            merged: Any = copy.deepcopy(policy.module).merge_and_unload()
            self._plain.load_state_dict(merged.state_dict())

    @torch.no_grad()
    def logprobs(self, prompt: PromptSamples, token_ids: Any) -> list[float]:
        ids = torch.tensor([[*prompt.prompt.tolist(), *token_ids]])
        more: dict[str, Any] = {}
        if prompt.images:
            images = [pixels_of(image) for image in prompt.images]
            more = dict(self._processor(images=images, return_tensors="pt"))
            more["mm_token_type_ids"] = (ids == IMAGE).int()
        logits = self._plain(input_ids=ids, **more).logits[0].float() / TEMPERATURE
        table = torch.log_softmax(logits, dim=-1)[len(prompt.prompt) - 1 : -1]
        return table.gather(1, torch.tensor(list(token_ids))[:, None])[:, 0].tolist()


def _logprobs(policy: PolicyModel, batch: Microbatch) -> dict[tuple[Any, ...], list[float]]:
    values = policy.logprobs(batch, want_entropy_grad=False)[0].tolist()
    by_sample: dict[tuple[Any, ...], list[float]] = {}
    for sequence, value in zip(batch.sequence_N.tolist(), values, strict=True):
        sample = batch.samples[sequence]
        by_sample.setdefault((sample.prompt_digest, sample.index), []).append(value)
    return by_sample


def _equal_alone(
    policy: PolicyModel, model: Path, batches: list[Microbatch], prompts: list[PromptSamples]
) -> None:
    alone = _Alone(policy, model)
    packed = {k: v for batch in batches for k, v in _logprobs(policy, batch).items()}
    assert len(packed) == sum(len(prompt.samples) for prompt in prompts)
    for prompt in prompts:
        for sample in prompt.samples:
            plain = alone.logprobs(prompt, sample.token_ids)
            assert packed[sample.prompt_digest, sample.index] == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize("kernels", [PLAIN, Kernels(is_packed=True)])
def test_logprobs_when_prompts_have_images_then_equal_passes_over_each_sequence_alone(
    kind: str, model: Path, kernels: Kernels
) -> None:
    policy = _loaded(model, kernels=kernels)
    prompts = _prompts(kind)
    batches = list(pack(prompts, BatchSpec(), shares_prompts=policy.shares_prompts))
    assert len(batches) == 1
    assert [len(b.images) for b in batches[0].image_blocks] != [1, 1, 2, 2], "sorted by length"

    _equal_alone(policy, model, batches, prompts)


def test_logprobs_when_blocks_are_segments_or_split_then_equal_passes_alone(
    kind: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "TREE_TOKENS", 16)
    policy, prompts = _loaded(model), _prompts(kind)

    batches = list(pack(prompts, BatchSpec(tokens_per_row=32, rows_per_microbatch=1)))

    assert len(batches) > 3
    assert any(batch.segments for batch in batches)
    _equal_alone(policy, model, batches, prompts)


def test_logprobs_when_prompts_come_in_another_order_then_are_the_same(
    kind: str, model: Path
) -> None:
    policy, prompts = _loaded(model), _prompts(kind)
    (batch,), (other,) = pack(prompts, BatchSpec()), pack(prompts[::-1], BatchSpec())

    found, expected = _logprobs(policy, other), _logprobs(policy, batch)

    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, abs=1e-5)


def test_logprobs_when_two_prompts_have_the_same_ids_and_other_images_then_differ(
    kind: str, model: Path
) -> None:
    policy, rng = _loaded(model), random.Random(2)
    one, two = random_image(rng, kind, 2, 2), random_image(rng, kind, 2, 2)
    ids = image_prompt(rng, kind, [one])
    first = image_group(random.Random(4), kind, [one], prompt=ids)
    second = image_group(random.Random(4), kind, [two], prompt=ids, task=1)
    assert first.prompts[0].token_ids == second.prompts[0].token_ids

    prompts = [credit(g, [1.0] * 4, TEMPERATURE).prompts[0] for g in (first, second)]
    (batch,) = pack(prompts, BatchSpec())
    by_sample = _logprobs(policy, batch)

    digests = [group.prompts[0].digest for group in (first, second)]
    assert digests[0] != digests[1]
    for index in range(4):
        values = [by_sample[digest, index] for digest in digests]
        assert max(abs(a - b) for a, b in zip(*values, strict=True)) > 1e-3
    _equal_alone(policy, model, [batch], prompts)


def test_a_completion_that_holds_the_token_of_images_is_not_taken_for_one(
    kind: str, model: Path
) -> None:
    policy, rng = _loaded(model), random.Random(3)
    group = image_group(rng, kind, [random_image(rng, kind, 2, 2)])
    group.candidates[1].token_ids[:] = [5, IMAGE, IMAGE, 7]
    group.candidates[1].rollout_logprobs[:] = [-1.0] * 4
    (batch,) = pack(credit(group, [1.0] * 4, 1.0).prompts, BatchSpec())

    by_sample = _logprobs(policy, batch)

    others = credit(group, [1.0] * 4, 1.0).prompts[0]
    alone = PromptSamples(others.prompt, [others.samples[1]], others.images)
    (single,) = pack([alone], BatchSpec())
    key = (others.samples[1].prompt_digest, 1)
    assert by_sample[key] == pytest.approx(_logprobs(policy, single)[key], abs=1e-5)


def _gradients(policy: PolicyModel, batch: Microbatch) -> dict[str, torch.Tensor | None]:
    policy.module.zero_grad(set_to_none=True)
    policy.logprobs(batch, want_entropy_grad=False)[0].sum().backward()
    return {name: parameter.grad for name, parameter in policy.module.named_parameters()}


def test_gradients_reach_every_adapter_of_the_language_model_and_nothing_of_the_tower(
    kind: str, model: Path
) -> None:
    policy = _loaded(model)
    (batch,) = pack(_prompts(kind), BatchSpec())

    gradients = _gradients(policy, batch)

    reached = {name for name, grad in gradients.items() if grad is not None and grad.abs().max()}
    assert reached == set(policy.trainable())
    assert len(reached) == 2 * 7 * 2  # A and B of seven linear layers in each of two blocks
    assert all("language_model" in name for name in reached)
    config = json.loads(policy.adapter_config_json)
    assert set(config["target_modules"]) == set(LORA_TARGETS)


@pytest.mark.parametrize("train", ["lora", "full"])
def test_vision_when_trained_then_gradients_reach_the_tower(
    kind: str, model: Path, train: str
) -> None:
    policy = _loaded(model, {"kind": train, "vision": True})
    (batch,) = pack(_prompts(kind), BatchSpec())

    gradients = _gradients(policy, batch)

    seen = [name for name in policy.trainable() if "visual" in name]
    assert seen
    assert all((grad := gradients[n]) is not None and grad.abs().max() > 0 for n in seen)


def test_full_weights_when_vision_is_not_asked_for_then_leave_the_tower(model: Path) -> None:
    policy = _loaded(model, {"kind": "full"})

    assert not [name for name in policy.trainable() if "visual" in name]
    assert [name for name in policy.weights() if "visual" in name], "replicas get it whole"


def test_gradients_when_activations_are_computed_again_then_are_equal(
    kind: str, model: Path
) -> None:
    spec = _policy(model, {"kind": "lora", "rank": 4, "alpha": 8, "vision": True})
    again, kept = (
        PolicyModel("shared", spec, seed=0, device="cpu", checkpoint_activations=checkpoints)
        for checkpoints in (True, False)
    )
    (batch,) = pack(_prompts(kind), BatchSpec())

    one, other = _gradients(again, batch), _gradients(kept, batch)

    for name in kept.trainable():
        expected, found = other[name], one[name]
        assert expected is not None and found is not None
        assert torch.allclose(found, expected, atol=1e-6), name


def test_an_image_of_a_frozen_tower_is_computed_once_while_it_is_kept(
    model: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    policy = _loaded(model)
    computed: list[str] = []

    def counted(image: Any, model: Any) -> Any:
        computed.append(image.digest)
        return patches_of(image, model)

    monkeypatch.setattr(vision, "patches_of", counted)
    (batch,) = pack(_prompts(kind), BatchSpec())
    first, second = (_logprobs(policy, batch) for _ in range(2))
    assert first == second
    assert len(computed) == len(set(computed)) == 3

    monkeypatch.setattr(vision, "KEPT_BYTES", 1)
    assert _logprobs(policy, batch) == first, "the same bits when features are computed again"


def test_reference_logprobs_when_there_are_images_then_are_of_the_model_without_its_adapter(
    kind: str, model: Path
) -> None:
    policy, bare = _loaded(model), _loaded(model, {"kind": "full"})
    (batch,) = pack(_prompts(kind), BatchSpec())

    found = policy.reference_logprobs(batch)

    expected = bare.logprobs(batch, want_entropy_grad=False)[0]
    assert torch.allclose(found, expected, atol=1e-6)


def test_vision_when_the_model_takes_no_images_then_is_refused_by_name(tiny_model: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="takes no images") as refused:
        _loaded(tiny_model, {"kind": "lora", "vision": True})

    assert refused.value.pointer == "/policies/shared/train/vision"
