"""Memory that a device lacks: once it is repeated with the same bits, twice it ends the job.

There is no accelerator here, so PyTorch's error is raised by hand where a pass or a step asks.
"""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import FULL, LORA, job_spec, make_group

from troupe.algorithms.load import load_algorithm
from troupe.candidates import group_outcome
from troupe.errors import JobFailedError
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.samples import CreditedGroup, credit

TRAINS = pytest.mark.parametrize("train", [LORA, FULL], ids=["lora", "full"])
FORWARD, BACKWARD, STEP = "forward", "backward", "step"
REASON = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.50 GiB is free. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
)


class Shortage:
    """Raises PyTorch's error at the calls of these numbers."""

    def __init__(self, *calls: int) -> None:
        self._calls = calls
        self.count = 0

    def __call__(self, *_: Any) -> None:
        self.count += 1
        if self.count in self._calls:
            raise torch.OutOfMemoryError(REASON)


def _spec(model: Path, train: Any, **algorithm: Any) -> JobSpec:
    policy = {"model": str(model), "train": train, "optimizer": {"warmup_steps": 0}}
    kl = {"loss": {"kl": {"coef": 0.01}}}
    return job_spec(
        model,
        policies={"shared": policy},
        algorithm={"kind": "at_grpo", "group_size": 4, **kl, **algorithm},
    )


def _learner(spec: JobSpec) -> Learner:
    return Learner("shared", spec, load_algorithm(spec.algorithm), device="cpu")


def _groups(spec: JobSpec, count: int = 6) -> list[CreditedGroup]:
    rng = random.Random(7)
    made = [make_group(rng, task=n, rewards=[1.0, 0.0, 0.0, 0.5]) for n in range(count)]
    algorithm = load_algorithm(spec.algorithm)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in made]


def _short(learner: Learner, where: str, *calls: int) -> Shortage:
    """Let ``learner`` meet a shortage in its passes or at its optimizer's step."""
    shortage = Shortage(*calls)
    if where == FORWARD:
        learner.model.module.register_forward_pre_hook(shortage)
        learner.model._causal.model.register_forward_pre_hook(shortage)
    elif where == BACKWARD:
        next(iter(learner.model.trainable().values())).register_hook(shortage)
    else:
        learner._optimizer.register_step_pre_hook(shortage)
    return shortage


def _same(one: LearnerState, other: LearnerState) -> bool:
    return one.tensors.keys() == other.tensors.keys() and all(
        torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items()
    )


@TRAINS
@pytest.mark.parametrize(
    ("where", "call"), [(FORWARD, 1), (FORWARD, 4), (BACKWARD, 2), (BACKWARD, 5), (STEP, 2)]
)
def test_step_when_memory_is_short_once_then_the_weights_are_the_same_bits(
    tiny_model: Path, train: Any, where: str, call: int
) -> None:
    spec = _spec(tiny_model, train, minibatches=2)
    groups = _groups(spec)
    plain, short = _learner(spec), _learner(spec)
    before = plain.state()
    shortage = _short(short, where, call)
    wanted = [plain.step(groups).metrics, plain.step(groups).metrics]
    assert [short.step(groups).metrics, short.step(groups).metrics] == wanted
    assert shortage.count > call
    assert not _same(before, plain.state())
    assert _same(plain.state(), short.state())


@TRAINS
@pytest.mark.parametrize("where", [FORWARD, BACKWARD])
def test_ahead_when_memory_is_short_once_then_the_weights_are_the_same_bits(
    tiny_model: Path, train: Any, where: str
) -> None:
    spec = _spec(tiny_model, train)
    groups = _groups(spec, count=spec.tasks_per_step)
    plain, short = _learner(spec), _learner(spec)
    count = len(groups)
    before = plain.state()
    plain.step(groups)
    assert not _same(before, plain.state())
    shortage = _short(short, where, 2)
    while (window := short.next_window(count, range(count))) is not None:
        tickets = short.tickets_of(window, count)
        short.ahead(window, [groups[n] for n in tickets])
    short.step(groups)
    assert shortage.count > 2
    assert _same(plain.state(), short.state())


@pytest.mark.parametrize("where", [FORWARD, BACKWARD, STEP])
def test_step_when_memory_is_short_again_then_the_job_fails_and_says_what_to_change(
    tiny_model: Path, where: str
) -> None:
    spec = _spec(tiny_model, FULL)
    learner = _learner(spec)
    before = learner.state()
    _short(learner, where, *range(1, 100))
    with pytest.raises(JobFailedError) as failure:
        learner.step(_groups(spec))
    message = failure.value.message
    doing = "the optimizer's step" if where == STEP else r"a pass over \d+ tokens"
    assert re.search(f"Policy 'shared' ran out of memory on cpu in {doing}, and again", message)
    assert "Tried to allocate 2.00 GiB. GPU 0 has" in message
    assert "PYTORCH_CUDA_ALLOC_CONF" not in message
    for way in ("batch.tokens_per_row", "128 tokens", "max_new_tokens", "kind: lora"):
        assert way in message, way
    assert _same(before, learner.state())


def test_step_when_memory_is_short_while_moments_are_made_then_they_are_made_again(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model, FULL)
    plain, short = _learner(spec), _learner(spec)
    optimizer = short._optimizer
    shortage = Shortage(1)

    def half_made(*_: Any) -> None:
        if shortage.count == 0:
            optimizer.state[optimizer.learnt[0]]["step"] = torch.tensor(0.0)
        shortage()

    optimizer.register_step_pre_hook(half_made)
    plain.step(_groups(spec))
    short.step(_groups(spec))
    assert shortage.count == 2
    assert _same(plain.state(), short.state())
