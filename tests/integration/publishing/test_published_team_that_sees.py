"""A published policy that takes images loads by the lines of its card, and computes as trained."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel
from run_folders import spec_document, summary
from vision_data import IMAGE, KINDS, pixels_of, save_vision_model, save_vision_tokenizer

from benchmarks.rollout_fleet import TinyTrainer
from troupe.cli.main import run
from troupe.publishing.manifest import TeamManifest
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_trainer.checkpoint.canary import canary_of
from troupe_trainer.checkpoint.export import export_artifacts
from troupe_trainer.model.model import PolicyModel

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`Qwen2VLImageProcessor` requires torchvision"),
]


@pytest.fixture(params=KINDS)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save_vision_tokenizer(save_vision_model(tmp_path / "base", str(request.param)))


def _published(folder: Path, base: Path, train: LoraSpec | FullSpec) -> PolicyModel:
    """A run of one policy in ``folder``, published to ``folder / "out"``; its trainer's model."""
    policy = PolicySpec(model=str(base), train=train)
    trainer = TinyTrainer("seer", policy, folder / "weights")
    trainer.learn(1, size=0.3)
    source = folder / "run" / "seeing-1"
    source.mkdir(parents=True)
    document = spec_document(str(base), names=("seer",))
    document["workflow"]["order"] = ["seer"]
    document["policies"]["seer"]["train"] = train.model_dump()
    (source / "spec.json").write_text(json.dumps(document))
    (source / "summary.json").write_text(json.dumps(summary(source)))
    learner: Any = SimpleNamespace(model=trainer.model)
    learner.alone = lambda: learner
    export_artifacts(learner, policy, source / "policies" / "seer")
    assert run(["publish", str(source), "--to", f"folder:{folder / 'out'}"]) == 0
    return trainer.model


@pytest.mark.parametrize("train", [LoraSpec(rank=2), FullSpec(vision=True)], ids=["lora", "full"])
def test_card_when_the_policy_sees_then_its_lines_load_it_and_it_computes_as_trained(
    tmp_path: Path, base: Path, train: LoraSpec | FullSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = _published(tmp_path, base, train)
    assert TeamManifest.read(tmp_path / "out").policies["seer"].takes_images
    monkeypatch.chdir(tmp_path / "out")
    card = Path("policies/seer/README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["pipeline_tag"] == "image-text-to-text"
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code is not None
    assert "AutoModelForImageTextToText" in code[1]
    loaded: dict[str, Any] = {}
    exec(code[1], loaded)
    assert isinstance(loaded["model"], PeftModel) == (train.kind == "lora")
    assert loaded["tokenizer"].chat_template

    canary = canary_of(trained)
    ids = torch.tensor([canary.token_ids])
    inputs = loaded["images"](images=[pixels_of(canary.images[0])], return_tensors="pt")
    with torch.no_grad():
        logits = loaded["model"](
            input_ids=ids, mm_token_type_ids=(ids == IMAGE).int(), **inputs
        ).logits[0, :-1]
    table = torch.log_softmax(logits.float(), -1).gather(1, ids[0, 1:, None])[:, 0]
    scores = table.masked_fill(ids[0, 1:] == IMAGE, 0.0).tolist()
    assert scores == pytest.approx(trained.score(canary.token_ids, canary.images), abs=1e-5)
