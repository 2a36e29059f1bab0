"""How many layers two gloo ranks gather at once, and what a pass leaves behind."""

import random
from pathlib import Path
from typing import Any

import torch
from allocation_counter import AllocationCounter, GatheredCounter, LayerCounter
from ranks_world import load, started_ranks
from trainer_data import job_spec, make_group
from transformers import Qwen3Config, Qwen3ForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe_trainer.learn.learner import Learner
from troupe_trainer.samples import credit

LAYERS = 8
HIDDEN, INNER = 256, 1024


def _model(folder: Path) -> Path:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=48, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def test_layers_when_two_ranks_learn_in_bfloat16_then_at_most_two_are_gathered(
    tmp_path: Path,
) -> None:
    model = str(_model(tmp_path / "m"))
    with started_ranks() as started:
        for kind in ({"kind": "full"}, {"kind": "lora", "rank": 4}):
            for checkpointed in (False, True):
                _count(model, kind, started.ranks, checkpointed=checkpointed)


def _count(model: str, train: dict[str, Any], ranks: Any, *, checkpointed: bool) -> None:
    spec = job_spec(
        Path(model),
        policies={"shared": {"model": model, "train": train, "dtype": "bfloat16"}},
        algorithm={"group_size": 4, "loss": {"kl": {"coef": 0.1}}},
        batch={
            "tokens_per_row": 16,
            "rows_per_microbatch": 1,
            "checkpoint_activations": checkpointed,
        },
    )
    load(spec, ranks)
    learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", ranks=ranks)
    groups = [credit(make_group(random.Random(n)), [1.0, -1.0, 0.5, -0.5], 1.0) for n in (1, 2)]
    _ = learner.step(groups, 0)  # moments are there, and FSDP2's buffers
    layer = (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER) * 2
    with AllocationCounter(torch.Tensor) as counter:
        gathered = GatheredCounter(learner.model._sharded, counter)
        reference = learner.model._reference_sharded
        others = [GatheredCounter(reference, counter)] if reference is not None else []
        with LayerCounter(gathered, *others):
            outcome = learner.step(groups, 1)
    assert outcome.metrics["kl_ref"] >= 0.0
    assert outcome.metrics["grad_norm"] > 0.0
    assert 1 <= gathered.most <= 2
    # Of full weights the reference is a model of its own; under an adapter it is the base.
    assert len(others) == (1 if train["kind"] == "full" else 0)
    assert all(1 <= other.most <= 2 for other in others)
    # Gradients of this rank's rows in float32, and what two layers take while they are computed:
    # gathered twice (buffer and weights), gradients, and these once more in float32. The copies of
    # all layers that autocast kept would be LAYERS layers more.
    is_full = train["kind"] == "full"
    rows = LAYERS * layer // 2 * 2 if is_full else 0
    assert counter.peak < rows + (9 if is_full else 6) * layer, counter.peak / layer
    print(f"\n{train['kind']}: at most {gathered.most} layers, {counter.peak / layer:.1f} layers")
