"""A trained vision-language model is exported whole: plain transformers computes the same."""

import errno
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec
from transformers import AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from vision_data import IMAGE, KINDS, image_group, pixels_of, random_image, save_vision_model

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import group_outcome
from troupe.spec.batch import BatchSpec
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_trainer.checkpoint.export import export_artifacts, export_model
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import pack
from troupe_trainer.samples import credit


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", [{"kind": "lora", "rank": 4}, {"kind": "full", "vision": True}])
def test_export_when_the_model_sees_then_transformers_loads_it_and_agrees(
    tmp_path: Path, kind: Any, train: dict[str, Any]
) -> None:
    model = save_vision_model(tmp_path / "base", kind)
    optimizer = {"learning_rate": 0.02, "warmup_steps": 0}
    policy = {"model": str(model), "train": train, "optimizer": optimizer}
    spec = job_spec(model, policies={"shared": policy}, algorithm={"group_size": 4})
    algorithm = AtGrpo(spec.algorithm)
    learner = Learner("shared", spec, algorithm, device="cpu")
    rng = random.Random(1)
    image = random_image(rng, kind, 2, 3)
    group = image_group(rng, kind, [image])
    credited = credit(group, algorithm.advantages(group_outcome(group)), 1.0)
    (batch,) = pack(credited.prompts, BatchSpec())
    before = learner.model.logprobs(batch, want_entropy_grad=False)[0]
    learner.step([credited], 0)
    trained = learner.model.logprobs(batch, want_entropy_grad=False)[0]
    assert (trained - before).abs().max() > 1e-3

    paths = export_artifacts(learner, spec.policies["shared"], tmp_path / "out")

    merged = Path(paths["merged"])
    plain: Any = AutoModelForImageTextToText.from_pretrained(merged).eval()
    assert json.loads((merged / "config.json").read_text())["model_type"] == kind
    inputs = Qwen2VLImageProcessorPil.from_pretrained(merged)(
        images=[pixels_of(image)], return_tensors="pt"
    )
    (prompt,), first = credited.prompts, batch.samples[0]
    ids = torch.tensor([[*prompt.prompt.tolist(), *first.token_ids]])
    with torch.no_grad():
        logits = plain(input_ids=ids, mm_token_type_ids=(ids == IMAGE).int(), **inputs).logits[0]
    table = torch.log_softmax(logits[len(prompt.prompt) - 1 : -1].float(), dim=-1)
    alone = table.gather(1, torch.tensor(list(first.token_ids))[:, None])[:, 0]
    assert alone.tolist() == pytest.approx(trained[: len(alone)].tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_export_when_full_weights_are_in_bfloat16_then_every_config_says_so(
    tmp_path: Path, kind: Any
) -> None:
    base = save_vision_model(tmp_path / "base", kind)
    policy = PolicySpec(model=str(base), dtype="bfloat16", train=FullSpec())
    model = PolicyModel("p", policy, seed=0, device="cpu")
    merged = Path(export_model(model, policy, tmp_path / "out", model.skeleton())["merged"])
    config = json.loads((merged / "config.json").read_text())
    parts = (config, config["text_config"], config["vision_config"])
    assert [part["dtype"] for part in parts] == ["bfloat16"] * 3


def test_export_when_the_disk_is_full_then_fails_and_lacks_no_file_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    base = save_vision_model(tmp_path / "base", KINDS[0])
    policy = PolicySpec(model=str(base), train=FullSpec())
    model = PolicyModel("p", policy, seed=0, device="cpu")
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        export_model(model, policy, tmp_path / "out", model.skeleton())
    assert not (tmp_path / "out" / "merged").exists()
