"""The operations of a step are those that PyTorch's own counter sees in its products."""

import random
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from trainer_data import job_spec, make_group

from troupe.spec.batch import BatchSpec
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_trainer.model.flops import peak_flops
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import pack
from troupe_trainer.samples import credit


def test_flops_when_counted_by_torch_then_agree(tiny_model: Path) -> None:
    # In bfloat16, for PyTorch's counter does not know the products of oneDNN.
    spec = PolicySpec(model=str(tiny_model), train=FullSpec(), dtype="bfloat16")
    model = PolicyModel("shared", spec, seed=0, device="cpu")
    groups = [make_group(random.Random(4), task=task) for task in range(4)]
    prompts = [p for g in groups for p in credit(g, [1.0] * 4, 0.7).prompts]
    (batch,) = pack(prompts, job_spec(tiny_model, batch=BatchSpec().model_dump()).batch)
    with FlopCounterMode(display=False) as counter:
        model.logprobs(batch, want_entropy_grad=False)[0].sum().backward()
    products = counter.get_flop_counts()["Global"]
    linear = sum(n for op, n in products.items() if "attention" not in str(op))
    pairs = float((batch.positions_M + 1).sum())
    attention = 3 * 4 * 32 * 2 * pairs  # forward and twice backward; 32 wide, 2 layers
    assert model.flops.of(batch) == pytest.approx(linear + attention, rel=0.01)
    assert peak_flops(torch.device("cpu")) is None
