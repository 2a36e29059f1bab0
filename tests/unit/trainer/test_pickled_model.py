"""A base model whose weights are pickled runs nothing in the trainer."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from troupe.errors import InvalidArgumentError
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_trainer.model.model import PolicyModel


class Attack:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(self._mark),)


@pytest.mark.parametrize("train", [LoraSpec(), FullSpec()])
def test_model_when_its_weights_are_pickled_then_is_refused_and_runs_nothing(
    tiny_model: Path, tmp_path: Path, train: LoraSpec | FullSpec
) -> None:
    evil, mark = tmp_path / "model", tmp_path / "was-here"
    shutil.copytree(tiny_model, evil)
    (evil / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Attack(mark)}, evil / "pytorch_model.bin")
    with pytest.raises(InvalidArgumentError, match="safetensors weights"):
        PolicyModel("p", PolicySpec(model=str(evil), train=train), seed=0, device="cpu")
    assert not mark.exists()
