"""What a sum of full weights' gradients holds, and what a window's addition takes: of `overlap`.

Real are a model of SmolLM2-135M's shape with random weights, two windows of one short micro-batch
each, and both sums (`troupe_trainer.learn.gradient_sums`), on one core. Bytes are those of all
tensors that the passes allocate.
"""

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.random_model import save_random_model
from benchmarks.trainer_size.allocation_counter import AllocationCounter
from troupe.spec.policy import PolicySpec
from troupe_trainer.learn.gradient_sums import Exact, GradientSum, InTurn
from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.model.model import PolicyModel

LAYERS = 30
TOKENS = 32
TIMES = 5
_ROOM = 1 << 40


def cost_rows(folder: Path, layers: int = LAYERS) -> list[dict[str, Any]]:
    """A row of each way to sum; ``layers`` of the model's 30."""
    torch.set_num_threads(1)
    path = save_random_model(
        folder / "full",
        num_words=49_144,
        hidden=576,
        layers=layers,
        heads=9,
        kv_heads=3,
        intermediate=1536,
        sharpness=1.0,
    )
    policy = PolicySpec.model_validate({"model": str(path), "train": {"kind": "full"}})
    model = PolicyModel("p", policy, seed=0, device="cpu")
    model.spread(model.ranks)
    parameters = list(model.trainable().values())
    return [
        {"sum": name, **_bytes(model, how, early=early), "ms_per_million": _ms(parameters, how)}
        for name, how, early in (
            ("exact", Exact, True),
            ("in turn", partial(InTurn, held_bytes=_ROOM), False),
            ("in turn, one early", partial(InTurn, held_bytes=_ROOM), True),
        )
    ]


def _bytes(model: PolicyModel, how: Any, *, early: bool) -> dict[str, Any]:
    """Bytes a trained number above those before: at the second window's peak, and after it."""
    parameters = list(model.trainable().values())
    count = sum(parameter.numel() for parameter in parameters)
    tokens = torch.arange(8, 8 + TOKENS)[None]

    def compute(_: Any) -> Minibatch:
        model.module(input_ids=tokens).logits.logsumexp(-1).sum().backward()
        return Minibatch(sums=defaultdict(float))

    with AllocationCounter(torch.Tensor) as counter:
        compute(None)  # the counter has met the weights then, and what is kept from this pass on
        _forget(parameters)
        before = counter.now
        total: GradientSum = how(parameters)
        windows = (1, 0) if early else (0, 1)
        total.add(windows[0], [()], compute)
        counter.peak = counter.now
        total.add(windows[1], [()], compute)
        held, peak = counter.now, counter.peak
        total.finish()
    _forget(parameters)
    return {
        "parameters": count,
        "bytes_held": round((held - before) / count, 2),
        "bytes_at_peak": round((peak - before) / count, 2),
    }


def _ms(parameters: Sequence[nn.Parameter], how: Any) -> float:
    """Processor time of adding one window, whose gradients are there, for a million numbers."""
    gradients = [torch.randn_like(parameter) * 1e-3 for parameter in parameters]
    total: GradientSum = how(parameters)

    def compute(_: Any) -> Minibatch:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient.clone() if isinstance(total, InTurn) else gradient
            else:
                parameter.grad.add_(gradient)
        return Minibatch(sums=defaultdict(float))

    times: list[float] = []
    for window in range(TIMES + 1):
        began = time.process_time()
        total.add(window, [()], compute)
        times.append(time.process_time() - began)
    _forget(parameters)
    millions = sum(parameter.numel() for parameter in parameters) / 1e6
    return round(1000 * statistics.median(times[1:]) / millions, 2)


def _forget(parameters: Sequence[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None
    gc.collect()
