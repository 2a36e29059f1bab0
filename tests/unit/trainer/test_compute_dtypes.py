"""In which number format a step computes: every product of matrices is counted by its dtype."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trainer_data import VOCABULARY, groups_of_step, job_spec, save_tiny_model

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import group_outcome
from troupe.spec.job import JobSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.samples import CreditedGroup, credit

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "attention")


class Products(TorchDispatchMode):
    """Counts products by the dtypes of their floating-point inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.by_dtype: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).removeprefix("aten.")
        kind = next((k for k in PRODUCTS if k == name or (k == "attention" and k in name)), None)
        if kind is not None:
            # The log-sum-exp of attention is float32 by definition, and no factor.
            leaves = [x for x in tree_leaves(args[:3]) if isinstance(x, torch.Tensor)]
            for dtype in {x.dtype for x in leaves if x.is_floating_point()}:
                self.by_dtype[kind, str(dtype).removeprefix("torch.")] += 1
        return func(*args, **(kwargs or {}))


def _groups(spec: JobSpec, *, is_long: bool) -> list[CreditedGroup]:
    algorithm, groups = AtGrpo(spec.algorithm), groups_of_step(0)
    rng = random.Random(0)
    for prompt in (p for group in groups for p in group.prompts if is_long):
        prompt.token_ids.extend(rng.randrange(VOCABULARY) for _ in range(600))
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _learner(tmp_path: Path, train: dict[str, Any], dtype: str, checkpointed: bool) -> Learner:
    model = save_tiny_model(tmp_path / "model")
    policy = {"model": str(model), "train": train, "dtype": dtype}
    batch = {"tokens_per_row": 4096, "checkpoint_activations": checkpointed}
    spec = job_spec(model, policies={"shared": policy}, batch=batch)
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("is_long", [False, True], ids=["trees", "segments"])
@pytest.mark.parametrize("train", [{"kind": "lora", "rank": 4}, {"kind": "full"}], ids=str)
def test_step_when_bfloat16_then_each_product_is_and_masters_and_moments_are_float32(
    train: dict[str, Any], is_long: bool, checkpointed: bool, tmp_path: Path
) -> None:
    learner = _learner(tmp_path, train, "bfloat16", checkpointed)
    groups = _groups(learner._make[0], is_long=is_long)
    with Products() as products:
        learner.step(groups)
    assert {kind for kind, _ in products.by_dtype} >= {"mm", "attention"}
    assert {dtype for _, dtype in products.by_dtype} == {"bfloat16"}, products.by_dtype
    assert {p.dtype for p in learner.model.trainable().values()} == {torch.float32}
    moments = [
        value
        for state in learner._optimizer.state.values()
        for name, value in state.items()
        if name.startswith("exp_avg")
    ]
    assert len(moments) == 2 * len(learner.model.trainable())
    assert {moment.dtype for moment in moments} == {torch.float32}


def test_step_when_float32_then_no_product_is_rounded(tmp_path: Path) -> None:
    learner = _learner(tmp_path, {"kind": "lora", "rank": 4}, "float32", False)
    with Products() as products:
        learner.step(_groups(learner._make[0], is_long=True))
    assert {dtype for _, dtype in products.by_dtype} == {"float32"}


def test_model_when_on_a_gpu_then_what_remains_in_float32_is_multiplied_in_tf32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LoadingError(Exception):
        pass

    def load(*_: Any) -> Any:
        raise LoadingError  # there is no GPU here: what comes before is what is asked

    monkeypatch.setattr("troupe_trainer.model.base_model.load_causal", load)
    spec = PolicySpec(model=str(tmp_path), train=LoraSpec(rank=4))
    before = torch.get_float32_matmul_precision()
    try:
        for device, precision in (("cpu", before), ("cuda", "high")):
            with pytest.raises(LoadingError):
                PolicyModel("p", spec, seed=0, device=device)
            assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
