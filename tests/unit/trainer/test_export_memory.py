"""`troupe export` holds the weights that it writes, and nothing else of a checkpoint."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from trainer_data import FULL, groups_of_step, job_spec

from benchmarks.trainer_size.allocation_counter import AllocationCounter
from troupe.algorithms.grpo import Grpo
from troupe.candidates import group_outcome
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.checkpoint.offline_export import export
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.samples import credit


def _run(model: Path, run_dir: Path, kind: str = "grpo") -> LearnerState:
    """What a job with full weights and a KL to their reference leaves; the learner's state."""
    # Made-up tokens are clipped, and the policy is its reference still: the bonus has a gradient.
    loss = {"kl": {"coef": 0.01}, "entropy_coef": 0.01}
    algorithm = {"kind": kind, "group_size": 4, "loss": loss}
    policy = {"model": str(model), "train": FULL}
    spec = job_spec(model, algorithm=algorithm, policies={"shared": policy})
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(spec.model_dump_json())
    grpo = Grpo(spec.algorithm)
    learner = Learner("shared", spec, grpo, device="cpu")
    groups = [credit(g, grpo.advantages(group_outcome(g)), 1.0) for g in groups_of_step(0)]
    learner.step(groups)
    state = learner.state()
    Checkpoints(run_dir, spec).save(CheckpointContents(1, {"shared": state}))
    return state


def test_export_of_full_weights_then_neither_moments_nor_reference_are_in_memory(
    tiny_model: Path, tmp_path: Path
) -> None:
    state = _run(tiny_model, tmp_path / "run")
    sizes = {name: tensor.nbytes for name, tensor in state.tensors.items()}
    weights = sum(size for name, size in sizes.items() if name.startswith("param/"))
    assert sum(size for name, size in sizes.items() if "exp_avg" in name) == 2 * weights
    with AllocationCounter(torch.Tensor) as counter:
        paths = export(tmp_path / "run", "latest", tmp_path / "out")["shared"]
    assert counter.peak < 3 * weights
    written = load_file(Path(paths["merged"]) / "model.safetensors")
    assert written
    assert all(torch.equal(t, state.tensors[f"param/{name}"]) for name, t in written.items())


def test_export_when_the_algorithm_is_not_installed_here_then_needs_none(
    tiny_model: Path, tmp_path: Path
) -> None:
    _run(tiny_model, tmp_path / "run", kind="my_package.elsewhere:Mine")
    assert "merged" in export(tmp_path / "run", "latest", tmp_path / "out")["shared"]
