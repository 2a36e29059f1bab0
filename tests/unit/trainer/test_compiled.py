"""torch.compile of a layer's parts: the same losses, and a bounded number of compilations."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from trainer_data import groups_of_step, job_spec, make_group, save_tiny_model

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import group_outcome
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.model import compiled
from troupe_trainer.model.compiled import attends, compile_parts, why_not
from troupe_trainer.model.ranks.group import Ranks
from troupe_trainer.samples import CreditedGroup, credit

# The compiler's own modules warn where they are imported and where they look at tensors.
pytestmark = pytest.mark.filterwarnings("ignore")

CPU = torch.device("cpu")
STEPS = 10
MOST_GRAPHS = 12
"""An MLP, a norm of a layer, with and without gradient, and the first sizes: not layers x steps."""


@pytest.fixture
def compiler() -> Iterator[None]:
    if reason := why_not(CPU):
        pytest.skip(f"torch.compile can't be tried: {reason}")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def _credited(spec: JobSpec, step: int, **lengths: Any) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    groups = groups_of_step(step) if not lengths else [make_group(random.Random(step), **lengths)]
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _losses(spec: JobSpec, *, is_compiled: bool) -> tuple[list[float], list[int]]:
    """Losses of steps whose groups have other numbers and lengths each time, and graphs so far."""
    learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", is_compiled=is_compiled)
    losses: list[float] = []
    graphs: list[int] = []
    for step in range(STEPS):
        outcome = learner.step(_credited(spec, step))
        losses += [outcome.metrics["loss"], outcome.metrics["grad_norm"]]
        graphs.append(counters["stats"]["unique_graphs"])
    return losses, graphs


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_steps_when_compiled_then_losses_are_the_same_and_few_graphs_serve_all_lengths(
    kind: str, checkpointed: bool, tmp_path: Path, compiler: None
) -> None:
    spec = job_spec(
        save_tiny_model(tmp_path / "model", num_layers=4),
        steps=STEPS,
        batch={
            "tokens_per_row": 64,
            "rows_per_microbatch": 2,
            "checkpoint_activations": checkpointed,
        },
    )
    if kind == "full":
        policy = spec.policies["shared"].model_dump() | {"train": {"kind": "full"}}
        spec = job_spec(
            tmp_path / "model",
            steps=STEPS,
            batch=spec.batch.model_dump(),
            policies={"shared": policy},
        )
    plain, none = _losses(spec, is_compiled=False)
    assert none[-1] == 0
    found, graphs = _losses(spec, is_compiled=True)
    print(f"\ngraphs after each step: {graphs}")
    assert found == pytest.approx(plain, rel=2e-4, abs=1e-6)
    assert 0 < graphs[-1] <= MOST_GRAPHS
    assert graphs[-1] == graphs[4], "no step after the fifth compiled again"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_segments_when_compiled_then_loss_is_the_same(tmp_path: Path, compiler: None) -> None:
    model = save_tiny_model(tmp_path / "model")
    spec = job_spec(model, batch={"tokens_per_row": 4096})
    rng = random.Random(0)
    group = make_group(rng)
    for prompt in group.prompts:
        prompt.token_ids.extend(rng.randrange(48) for _ in range(600))
    losses: list[float] = []
    for is_compiled in (False, True):
        algorithm = AtGrpo(spec.algorithm)
        learner = Learner("shared", spec, algorithm, device="cpu", is_compiled=is_compiled)
        credited = credit(group, algorithm.advantages(group_outcome(group)), 1.0)
        losses.append(learner.step([credited]).metrics["grad_norm"])
    assert losses[1] == pytest.approx(losses[0], rel=2e-4)


def test_parts_when_compiled_then_attention_is_left_and_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "why_not", lambda _: "")
    spec = job_spec(save_tiny_model(tmp_path / "model"))
    plain = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
    own = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", is_compiled=True)
    assert list(own.model.trainable()) == list(plain.model.trainable())
    layers = [m for m in own.model.module.modules() if "DecoderLayer" in type(m).__name__]
    for layer in layers:
        for part in layer.children():
            assert (part._compiled_call_impl is None) == attends(part)
    assert len(layers) == 2


def test_compile_when_it_can_not_be_then_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "why_not", lambda _: "no C++ compiler is there (none)")
    with pytest.raises(InvalidArgumentError, match=r"TROUPE_TRAINER_COMPILED .*no C\+\+ compiler"):
        compile_parts(torch.nn.Linear(2, 2), CPU)
    monkeypatch.setattr(compiled, "why_not", lambda _: "")
    with pytest.raises(InvalidArgumentError, match="Linear has no layers whose parts"):
        compile_parts(torch.nn.Linear(2, 2), CPU)
    spec = job_spec(save_tiny_model(tmp_path / "model"))
    two = Ranks.__new__(Ranks)
    two.size = 2
    load = Learners.load(spec, tmp_path, device="cpu", threads=1, ranks=two, is_compiled=True)
    with pytest.raises(InvalidArgumentError, match=r"TROUPE_TRAINER_COMPILED is on and .* 2 ranks"):
        asyncio.run(load)
