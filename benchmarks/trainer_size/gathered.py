"""How many layers of full weights or of an adapter's base two gloo ranks gather at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainer_size.allocation_counter import (
    AllocationCounter,
    GatheredCounter,
    LayerCounter,
)
from benchmarks.trainer_size.job import job_of, save_model, small_groups
from troupe.algorithms.at_grpo import AtGrpo
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.ranks.group import LOAD, Ranks
from troupe_trainer.model.ranks.start import start

LAYERS = 8
HIDDEN, INNER = 256, 1024
LAYER_BYTES = (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER) * 2
SHAPE = {
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
KINDS: tuple[dict[str, Any], ...] = ({"kind": "full"}, {"kind": "lora", "rank": 4})


@dataclass(frozen=True)
class Gathered:
    """Of one step: the most layers of the policy, and of a reference of its own (None: the base is
    the reference); the peak of what the step made, bytes; its metrics."""

    kind: str
    checkpointed: bool
    layers: int
    reference_layers: int | None
    peak: int
    metrics: dict[str, float]


def count_gathered(folder: Path) -> Iterator[Gathered]:
    """Each kind of policy, with activations kept and computed again."""
    model = save_model(folder / "m", **SHAPE)
    started = start(2, device="cpu", threads=1)
    try:
        for train in KINDS:
            for checkpointed in (False, True):
                yield _counted(model, train, started.ranks, checkpointed=checkpointed)
    finally:
        started.end()


def _counted(model: Path, train: dict[str, Any], ranks: Ranks, *, checkpointed: bool) -> Gathered:
    batch = {"tokens_per_row": 16, "rows_per_microbatch": 1, "checkpoint_activations": checkpointed}
    loss = {"kl": {"coef": 0.1}}
    spec = job_of(model, train, algorithm={"group_size": 4, "loss": loss}, batch=batch)
    ranks.tell(("", LOAD, (spec.model_dump_json(), "auto")))
    learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", ranks=ranks)
    groups = small_groups(2)
    _ = learner.step(groups, 0)  # moments are there, and FSDP2's buffers
    with AllocationCounter(torch.Tensor) as counter:
        gathered = GatheredCounter(learner.model._sharded, counter)
        reference = learner.model._reference_sharded
        others = [GatheredCounter(reference, counter)] if reference is not None else []
        with LayerCounter(gathered, *others):
            outcome = learner.step(groups, 1)
    return Gathered(
        train["kind"],
        checkpointed,
        gathered.most,
        others[0].most if others else None,
        counter.peak,
        dict(outcome.metrics),
    )
