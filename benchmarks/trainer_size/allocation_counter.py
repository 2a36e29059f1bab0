"""Counts the bytes that a policy's forward and backward pass holds, on fake tensors.

Every operator runs with its real shapes and dtypes and without numbers: storages are counted from
the operator that made them until nothing refers to them. What a kernel holds inside is not seen.
"""

import gc
import json
import random
import weakref
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from troupe.candidates import Sample
from troupe.runtime.engines.presets import ModelShape
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_trainer.learn.gradient_sums import DEVICE_CHUNK, Exact
from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.model.logprobs import tokens_per_chunk
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Microbatch, block_of, microbatch
from troupe_trainer.model.ranks.group import SOLO, Ranks
from troupe_trainer.samples import PromptSamples


class AllocationCounter(TorchDispatchMode):
    """``now`` and ``peak``: bytes of the tensors' storages that were made inside and live.

    Of fake tensors, or of ``kind``. A storage that FSDP empties, and fills again, counts with the
    size that it has.
    """

    def __init__(self, kind: type[torch.Tensor] = FakeTensor) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._kind = kind
        self._sizes: dict[int, int] = {}
        self._resized: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its operator on this rank's rows comes here next
        self._look_again()
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, self._kind):
                self._note(leaf.untyped_storage())
        self._look_again()
        return result

    def watch(self, storages: Iterable[Any]) -> None:
        """Storages whose size changes outside of any operator."""
        for storage in storages:
            self._resized[storage._cdata] = storage

    def _look_again(self) -> None:
        for key, storage in self._resized.items():
            if key in self._sizes:
                size = storage.nbytes()
                self.now += size - self._sizes[key]
                self._sizes[key] = size
        self.peak = max(self.peak, self.now)

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.now += self._sizes[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class GatheredCounter:
    """The most decoder layers of FSDP2 whose weights are gathered, or on their way, at once.

    Looks before and after each operator, and tells ``counter`` of storages that FSDP2 resizes.
    """

    def __init__(self, module: Any, counter: AllocationCounter) -> None:
        self.most = 0
        self._counter = counter
        states = [getattr(part, "_get_fsdp_state", lambda: None)() for part in module.modules()]
        groups = [state._fsdp_param_group for state in states if state is not None]
        self._root, self._layers = groups[:1], groups[1:]

    def look(self) -> None:
        """Count now."""
        for group in (*self._root, *self._layers):
            outputs = [t for p in group.fsdp_params for t in p.all_gather_outputs]
            self._counter.watch(t.untyped_storage() for t in outputs)
        self.most = max(self.most, sum(map(_is_gathered, self._layers)))


def _is_gathered(group: Any) -> bool:
    outputs = (t for p in group.fsdp_params for t in p.all_gather_outputs)
    held = any(t.untyped_storage().nbytes() for t in outputs)
    return held or group._all_gather_result is not None


class LayerCounter(TorchDispatchMode):
    """Runs ``GatheredCounter``s before and after each operator."""

    def __init__(self, *gathered: GatheredCounter) -> None:
        super().__init__()
        self._gathered = gathered

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._look()
        result = func(*args, **(kwargs or {}))
        self._look()
        return result

    def _look(self) -> None:
        for gathered in self._gathered:
            gathered.look()


class FakeRanks(Ranks):
    """Rank 0 of ``size``, whose collectives send nothing: what it allocates is a real rank's."""

    def __init__(self, size: int) -> None:
        self.size = self.num_shards = size
        self.mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("shards",))


@contextmanager
def fake_ranks(size: int) -> Generator[Ranks]:
    """The ranks of a group of ``size`` in this process; SOLO for one."""
    if size == 1:
        yield SOLO
        return
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield FakeRanks(size)
    finally:
        dist.destroy_process_group()


def save_config(shape: ModelShape, folder: Path) -> Path:
    """A folder with the config.json of a Qwen3 of this shape and no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.is_tied,
        "max_position_embeddings": 40960,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def count(
    policy: PolicySpec,
    *,
    prompt: int,
    completions: list[int],
    copies: int,
    checkpoint_activations: bool,
    ranks: int = 1,
    sums_exactly: bool = False,
) -> dict[str, int]:
    """Bytes held before a step, and at the peak of two passes over ``copies`` equal groups: the
    second meets the gradients of the first, or with ``sums_exactly`` their sum.

    Over ``ranks``: those of one of them, and the most layers that were gathered at once.
    """
    batch = _batch(prompt, completions, copies)
    with (
        fake_ranks(ranks) as group,
        _as_on_a_gpu(),
        FakeTensorMode(allow_non_fake_inputs=True),
        AllocationCounter() as counter,
    ):
        model = PolicyModel(
            "p", policy, seed=0, device="cpu", checkpoint_activations=checkpoint_activations
        )
        model.spread(group)
        trained = list(model.trainable().values())
        moments = [torch.zeros_like(p) for p in trained for _ in range(2)]
        gc.collect()
        before = counter.peak = counter.now
        gathered = GatheredCounter(model._sharded or torch.nn.Module(), counter)
        with LayerCounter(gathered):
            if sums_exactly:
                total = Exact(trained)
                total.add(0, [(), ()], lambda _: _pass(model, batch))
                total.finish()
            else:
                for _ in range(2):
                    _pass(model, batch)
        assert all(p.grad is not None for p in trained)
        gradients = sum(p.numel() * p.element_size() for p in trained)
        assert len(moments) == 2 * len(trained)
        return {
            "tokens": len(batch.tokens_M),
            "before": before,
            "gradients": gradients,
            "peak": counter.peak,
            "layers": gathered.most,
        }


def _pass(model: PolicyModel, batch: Microbatch) -> Minibatch:
    logprobs, entropy = model.logprobs(batch, want_entropy_grad=False)
    (logprobs.sum() + 0.0 * entropy.sum()).backward()
    return Minibatch(sums=defaultdict(float))


def count_forward(
    policy: PolicySpec, *, prompt: int, completions: list[int], copies: int
) -> dict[str, int]:
    """Bytes held by a frozen model, and at the peak of a pass without gradient."""
    batch = _batch(prompt, completions, copies)
    with (
        _as_on_a_gpu(),
        FakeTensorMode(allow_non_fake_inputs=True),
        AllocationCounter() as counter,
    ):
        model = PolicyModel("p", policy, seed=0, device="cpu", is_frozen=True)
        before = counter.now
        with torch.no_grad():
            model.logprobs(batch, want_entropy_grad=False)
        return {"tokens": len(batch.tokens_M), "before": before, "peak": counter.peak}


def _batch(prompt: int, completions: list[int], copies: int) -> Microbatch:
    """``copies`` groups of one prompt and its completions."""
    rng = random.Random(0)
    blocks = [
        block_of(
            PromptSamples(
                np.array([rng.randrange(1000) for _ in range(prompt)], dtype=np.int32),
                [
                    Sample(
                        0,
                        0.0,
                        n,
                        False,
                        token_ids=[rng.randrange(1000) for _ in range(n)],
                        rollout_logprobs=np.zeros(n, dtype=np.float32),
                    )
                    for n in completions
                ],
            )
        )
        for _ in range(copies)
    ]
    return microbatch(blocks)


@contextmanager
def _as_on_a_gpu() -> Generator[None]:
    """Models have shapes alone, and attention and the head are computed as on an accelerator."""

    def load(policy: str, spec: PolicySpec, device: torch.device, kernels: Any) -> Any:
        is_lora = isinstance(spec.train, LoraSpec)
        dtype = getattr(torch, spec.dtype) if is_lora else torch.float32
        config = AutoConfig.from_pretrained(spec.model)
        with no_init_weights():
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
        model.tie_weights()
        return model

    def chunk(vocabulary_size: int, *, on_cpu: bool) -> int:
        return tokens_per_chunk(vocabulary_size, on_cpu=False)

    at, sums = "troupe_trainer.model", "troupe_trainer.learn.gradient_sums"
    with (
        patch(f"{at}.base_model.load_causal", load),
        patch(f"{at}.base_model.base_digest", lambda *_: ""),
        patch(f"{at}.model.tokens_per_chunk", chunk),
        patch(f"{at}.flash.is_on_cpu", lambda _: False),
        # There are no numbers, so none is large.
        patch(f"{sums}._has_large", lambda _: False),
        patch(f"{sums}._at_once", lambda _: DEVICE_CHUNK),
        # All is on one device, and adapters are made in float32, where they end. Fake parameters
        # can't be moved.
        patch.object(torch.nn.Module, "to", lambda module, *_, **__: module),
    ):
        yield
