"""Ranks write a checkpoint of full weights in parts, and any number of ranks goes on from it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks_world import load, ranks_with, started_ranks
from safetensors.torch import load_file
from trainer_data import groups_of_step, job_spec

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import group_outcome
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.run_folder import part_names
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.files import (
    FORMAT,
    FORMAT_IN_PARTS,
    CheckpointContents,
    Checkpoints,
)
from troupe_trainer.checkpoint.offline_export import export
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.outcome import LearnOutcome
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.model.ranks.group import Ranks, join
from troupe_trainer.samples import CreditedGroup, credit


def _spec(model: Path, **trainer: Any) -> JobSpec:
    optimizer = {"learning_rate": 0.01, "warmup_steps": 0}
    policy = {"model": str(model), "train": {"kind": "full"}, "optimizer": optimizer}
    return job_spec(
        model,
        policies={"shared": policy},
        algorithm={"group_size": 4, "loss": {"kl": {"coef": 0.1, "adaptive": {"target": 0.05}}}},
        batch={"tokens_per_row": 32, "rows_per_microbatch": 1},
        trainer=trainer,
    )


def _credited(step: int, spec: JobSpec) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    groups = groups_of_step(step, tasks=3)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _learner(spec: JobSpec, ranks: Ranks) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu", ranks=ranks)


def _save(learner: Learner, step: int, checkpoints: Checkpoints) -> Path:
    return _save_in(checkpoints.begin(step), learner, step, checkpoints)


def _save_in(staging: Path, learner: Learner, step: int, checkpoints: Checkpoints) -> Path:
    state = learner.state_in(staging / "shared")
    return checkpoints.save(CheckpointContents(step, {"shared": state}))


def _same(one: LearnerState, other: LearnerState) -> bool:
    return one.tensors.keys() == other.tensors.keys() and all(
        torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors
    )


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@dataclass(frozen=True, slots=True)
class Written:
    """A run whose checkpoint after one step two ranks have written."""

    run: Path
    spec: JobSpec
    folder: Path
    learners: Mapping[str, LearnerState]
    whole: LearnerState
    """What the ranks held then, gathered."""


@pytest.fixture(scope="module")
def written(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    run, spec = tmp_path_factory.mktemp("run"), _spec(tiny_model)
    (run / "spec.json").write_text(spec.model_dump_json())
    checkpoints = Checkpoints(run, spec)
    with ranks_with(spec) as ranks:
        learner = _learner(spec, ranks)
        learner.step(_credited(0, spec), 0)
        folder = _save(learner, 1, checkpoints)
        whole = learner.state()
    return Written(run, spec, folder, checkpoints.read(folder).learners, whole)


def test_checkpoint_when_two_ranks_write_it_then_each_writes_its_part(written: Written) -> None:
    assert _files(written.folder) == [*part_names("shared", 2), "state.json"]
    body = json.loads((written.folder / "state.json").read_text())
    assert (body["format"], body["parts"]) == (FORMAT_IN_PARTS, {"shared": 2})
    sizes = [(written.folder / name).stat().st_size for name in part_names("shared", 2)]
    assert max(sizes) < 0.7 * sum(sizes)


def test_checkpoint_when_a_rank_cannot_write_its_part_then_the_one_before_is_gone_on_from(
    written: Written, tiny_model: Path, tmp_path: Path
) -> None:
    spec = written.spec
    checkpoints = Checkpoints(tmp_path / "run", spec)
    with ranks_with(spec) as ranks:
        assert ranks.num_blind(tiny_model) == 0
        assert ranks.num_blind(tmp_path / "nowhere") == 2
        learner = _learner(spec, ranks)
        learner.restore(written.learners["shared"])
        _save(learner, 1, checkpoints)
        staging = checkpoints.begin(2)
        (staging / part_names("shared", 2)[1]).with_suffix(".draft").mkdir()
        with pytest.raises(UnavailableError, match=r"step 2 can't be written .*00001-of-00002"):
            _save_in(staging, learner, 2, checkpoints)
        assert not staging.exists()
        loaded = checkpoints.load()
        assert loaded is not None and loaded.step == 1
        learner.step(_credited(1, spec), 1)
        learner.restore(loaded.learners["shared"])
        assert _same(learner.state(), written.whole)


def test_checkpoint_when_two_ranks_wrote_it_then_one_and_four_go_on_with_the_same_bits(
    written: Written, tmp_path: Path
) -> None:
    spec = written.spec
    alone = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
    alone.restore(written.learners["shared"])
    assert _same(alone.state(), written.whole)
    want = alone.step(_credited(2, spec), 2)
    with ranks_with(spec, 4) as ranks:
        learner = _learner(spec, ranks)
        assert ranks.num_shards == 4
        held = sum(p.to_local().numel() for p in learner.model.trainable().values())  # type: ignore[attr-defined]
        total = sum(p.numel() for p in learner.model.trainable().values())
        assert 0.2 * total < held < 0.3 * total
        learner.restore(written.learners["shared"])
        assert _same(learner.state(), written.whole)
        got = learner.step(_credited(2, spec), 2)
        _are_alike(got, want, learner.state().tensors, alone.state().tensors)
        four = _save(learner, 4, Checkpoints(tmp_path / "run", spec))
        assert _files(four) == [*part_names("shared", 4), "state.json"]


def _are_alike(
    got: LearnOutcome,
    want: LearnOutcome,
    learnt: Mapping[str, torch.Tensor],
    wanted: Mapping[str, torch.Tensor],
) -> None:
    for name in ("loss", "grad_norm", "kl_ref", "entropy"):
        assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5), name
    for name, tensor in wanted.items():
        if name.startswith("param/"):
            assert torch.allclose(learnt[name], tensor, atol=2e-4), name


def test_checkpoint_when_one_process_wrote_it_then_two_ranks_go_on_with_the_same_bits(
    written: Written, tmp_path: Path
) -> None:
    spec, checkpoints = written.spec, Checkpoints(tmp_path / "run", written.spec)
    alone = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
    alone.restore(written.learners["shared"])
    alone.step(_credited(2, spec), 2)
    folder = _save(alone, 3, checkpoints)
    assert json.loads((folder / "state.json").read_text())["format"] == FORMAT
    assert _files(folder) == ["shared.safetensors", "state.json"]
    with ranks_with(spec) as ranks:
        learner = _learner(spec, ranks)
        learner.restore(checkpoints.read(folder).learners["shared"])
        assert _same(learner.state(), alone.state())
        in_memory = LearnerState(
            dict(written.whole.tensors), written.whole.optimizer_step, written.whole.base
        )
        learner.restore(in_memory)
        assert _same(learner.state(), written.whole)


def test_export_when_two_ranks_wrote_the_checkpoint_then_has_whole_weights(
    written: Written, tmp_path: Path
) -> None:
    paths = export(written.run, "latest", tmp_path / "out")
    weights = load_file(Path(paths["shared"]["merged"]) / "model.safetensors")
    assert all(
        torch.equal(tensor, written.whole.tensors[f"param/{name}"])
        for name, tensor in weights.items()
    )
    assert weights


def test_weights_when_offloaded_then_two_ranks_learn_the_same(tiny_model: Path) -> None:
    states: list[LearnerState] = []
    with started_ranks() as started:
        for offload in (False, True):
            spec = _spec(tiny_model, gpus=2, **({"offload": True} if offload else {}))
            load(spec, started.ranks)
            learner = _learner(spec, started.ranks)
            assert learner.model._sharded is not None
            group = learner.model._sharded._get_fsdp_state()._fsdp_param_group  # type: ignore[operator]
            assert all(p.offload_to_cpu is offload for p in group.fsdp_params)
            for step in range(2):
                learner.step(_credited(step, spec), step)
            states.append(learner.state())
    assert _same(*states)


def test_ranks_when_they_cannot_be_divided_into_copies_then_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="4 ranks, which can't be divided into sets of 3"
    ):
        join("tcp://127.0.0.1:1", 0, 4, device="cpu", shard_ranks=3)


def test_ranks_without_gpus_when_they_are_to_hold_copies_then_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="over gloo a step of FSDP2 with copies"):
        join("tcp://127.0.0.1:1", 0, 4, device="cpu", shard_ranks=2)
