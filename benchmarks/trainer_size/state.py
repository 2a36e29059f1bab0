"""A state through four gloo ranks: loaded, written in parts and restored; and what memory grew.

The state is that of full weights: masters, Adam's moments, all in float32.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.processes import begin_peak, status_bytes
from benchmarks.trainer_size.job import job_of, save_model, small_groups
from troupe.algorithms.at_grpo import AtGrpo
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.ranks.group import LOAD
from troupe_trainer.model.ranks.start import start

RANKS = 4
GIGABYTE = {
    "vocab_size": 32_000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 8,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
"""A model whose state is 1.13 GB."""


@dataclass(frozen=True)
class KeptState:
    """``grown``: bytes by which the rank that grew most did, by moment; ``is_same``: what was
    restored is what was saved, to the bit."""

    size: int
    write_s: float
    restore_s: float
    grown: dict[str, int]
    is_same: bool

    @property
    def beside_part(self) -> int:
        """The most that a rank's memory grew by beyond its part of the state; 0: by less."""
        return max(0, max(self.grown.values()) - self.size // RANKS)


class Memory:
    """Bytes by which ranks' memory grows at most, from one moment on."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._before = {pid: begin_peak(pid) for pid in self._pids}

    def grown(self) -> int:
        """Of the rank that grew most."""
        return max(status_bytes(pid, "VmHWM") - held for pid, held in self._before.items())


def keep_state(folder: Path, shape: dict[str, int]) -> KeptState:
    """Load a model of ``shape``, learn, write its state, learn, and restore it."""
    spec = job_of(save_model(folder / "m", **shape), {"kind": "full"})
    checkpoints = Checkpoints(folder / "run", spec)
    grown: dict[str, int] = {}
    groups = small_groups(1)
    started = start(RANKS, device="cpu", threads=1)
    try:
        memory = Memory([os.getpid(), *(child.pid for child in started.children)])
        started.ranks.tell(("", LOAD, (spec.model_dump_json(), "auto")))
        learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", ranks=started.ranks)
        assert started.ranks.num_blind(folder) == 0  # all have loaded
        grown["start"] = memory.grown()
        _ = learner.step(groups, 0)  # moments are there
        memory.begin()
        begin = time.monotonic()
        state = learner.state_in(checkpoints.begin(1) / "shared")
        written = checkpoints.save(CheckpointContents(1, {"shared": state}))
        grown["writing"], write_s = memory.grown(), time.monotonic() - begin
        del state
        size = sum(path.stat().st_size for path in written.glob("*.safetensors"))
        _ = learner.step(groups, 1)
        memory.begin()
        begin = time.monotonic()
        learner.restore(checkpoints.read(written).learners["shared"])
        assert started.ranks.num_blind(folder) == 0  # all have restored
        grown["restore"], restore_s = memory.grown(), time.monotonic() - begin
        saved, back = checkpoints.read(written).learners["shared"].tensors, learner.state()
    finally:
        started.end()
    is_same = back.optimizer_step == 1 and back.tensors.keys() == saved.keys()
    is_same = is_same and all(torch.equal(back.tensors[name], saved[name]) for name in saved)
    return KeptState(size, write_s, restore_s, grown, is_same)
