import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import groups_of_step, job_spec
from transformers import AutoConfig, AutoModelForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe.algorithms.grpo import Grpo
from troupe.candidates import GroupOutcome, group_outcome
from troupe.errors import FencedError, InvalidArgumentError, JobFailedError, NotFoundError
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints, best_first
from troupe_trainer.checkpoint.offline_export import export
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.model.learner_state import (
    BaseChangedError,
    CheckpointMismatchError,
    IncompatibleWeightsError,
    LearnerState,
)
from troupe_trainer.samples import credit

STATE = {"shared": LearnerState({"param/w": torch.tensor([1.0, 2.0])}, 3)}


def _spec(tmp_path: Path, **overrides: Any) -> JobSpec:
    return job_spec(tmp_path / "model", **overrides)


def _save(
    checkpoints: Checkpoints,
    rewards: Mapping[int, float],
    steps: int,
    states: Mapping[str, LearnerState] = STATE,
) -> None:
    """One checkpoint a step; ``rewards[k]`` is what weights k earned."""
    for step in range(steps):
        report = {"step": step, "trained_reward_mean": rewards.get(step)}
        trained = [(step, {"shared": {f"g{step}": [0.5, -0.12345678]}})]
        checkpoints.save(CheckpointContents(step + 1, states, [report], trained))


def _names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_save_when_best_ones_are_kept_then_they_stay_beside_the_newest(tmp_path: Path) -> None:
    spec = _spec(tmp_path, checkpoint={"keep_last": 2, "keep_best": 1})
    checkpoints = Checkpoints(tmp_path, spec)
    _save(checkpoints, {0: 9.0, 1: 0.1, 2: 0.7, 3: 0.3, 4: 0.2, 5: 0.6}, 7)
    # Weights 2 earned most of those that have a checkpoint; what weights 7 earn is not known yet.
    assert _names(tmp_path) == ["step-00002", "step-00006", "step-00007"]
    assert [p.name for p in best_first(tmp_path / "checkpoints")] == ["step-00002"]


def test_save_when_nothing_is_said_then_the_newest_two_are_kept(tmp_path: Path) -> None:
    _save(Checkpoints(tmp_path, _spec(tmp_path)), {2: 5.0}, 5)
    assert _names(tmp_path) == ["step-00004", "step-00005"]


def test_load_when_saved_then_gives_back_tensors_counts_and_baselines(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, _spec(tmp_path))
    reports = [{"step": 3, "trained_reward_mean": 0.5}]
    checkpoints.save(CheckpointContents(4, STATE, reports, baselines={"mean": 0.25}))
    found = checkpoints.load()
    assert found is not None
    assert (found.step, found.reports, found.baselines) == (4, reports, {"mean": 0.25})
    assert found.learners["shared"].optimizer_step == 3
    assert torch.equal(found.learners["shared"].tensors["param/w"], torch.tensor([1.0, 2.0]))
    body = json.loads((tmp_path / "checkpoints" / "step-00004" / "state.json").read_text())
    assert body["versions"] == {"shared": 4}
    assert body["tasks_seen"] == 4 * 2


def test_load_when_the_newest_is_torn_then_takes_the_one_before_and_cuts_the_groups(
    tmp_path: Path,
) -> None:
    checkpoints = Checkpoints(tmp_path, _spec(tmp_path))
    _save(checkpoints, {}, 3)
    weights = tmp_path / "checkpoints" / "step-00003" / "shared.safetensors"
    os.truncate(weights, 10)
    (tmp_path / "checkpoints" / ".staging-step-00004").mkdir()
    found = checkpoints.load()
    assert found is not None
    assert found.step == 2
    lines = [json.loads(x) for x in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert [line["group_ids"] for line in lines] == [["g0"], ["g1"]]
    assert [line["advantages"] for line in lines] == [[[0.5, -0.123457]]] * 2
    assert ".staging-step-00004" not in _names(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, r"/seed was 3 and is 4"),
        ({"algorithm": {"group_size": 8}}, r"/algorithm/group_size was 4 and is 8"),
        (
            {"policies": {"shared": {"model": "m", "train": {"kind": "lora", "rank": 2}}}},
            r"/policies/shared/train/rank was 4 and is 2",
        ),
    ],
)
def test_load_when_the_spec_is_another_then_says_what_differs(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    _save(Checkpoints(tmp_path, _spec(tmp_path)), {}, 1)
    with pytest.raises(CheckpointMismatchError, match=words):
        Checkpoints(tmp_path, _spec(tmp_path, **change)).load()


def test_load_when_only_limits_differ_then_resumes(tmp_path: Path) -> None:
    _save(Checkpoints(tmp_path, _spec(tmp_path)), {}, 1)
    other = _spec(tmp_path, steps=9, checkpoint={"every": 3}, limits={"step_timeout_s": 5})
    assert Checkpoints(tmp_path, other).load() is not None


def test_load_when_the_format_is_another_then_says_so(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, _spec(tmp_path))
    _save(checkpoints, {}, 1)
    path = tmp_path / "checkpoints" / "step-00001" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    with pytest.raises(
        CheckpointMismatchError, match="has format 1 and this trainer reads 2 and 3"
    ):
        checkpoints.load()


def test_restore_when_the_adapter_has_another_shape_then_refuses_and_changes_nothing(
    tiny_model: Path,
) -> None:
    def learner(rank: int) -> Learner:
        policy = {"model": str(tiny_model), "train": {"kind": "lora", "rank": rank}}
        spec = job_spec(tiny_model, policies={"shared": policy})
        return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")

    small, large = learner(2), learner(4)
    before = {n: p.detach().clone() for n, p in large.model.trainable().items()}
    with pytest.raises(IncompatibleWeightsError, match=r"lora_A.*\(2, 32\) in the checkpoint"):
        large.restore(small.state())
    assert all(torch.equal(before[n], p) for n, p in large.model.trainable().items())


def _replaced(tiny_model: Path, folder: Path, how: str) -> Path:
    """The model folder after somebody put another model of the same shapes there, or the same."""
    if how == "weights":
        config = AutoConfig.from_pretrained(tiny_model)
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        return folder
    shutil.copytree(tiny_model, folder)
    if how == "settings":
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 0.5}))
    return folder


def _resume(spec: JobSpec, folder: Path, run_dir: Path) -> Learner:
    """A learner on the model in ``folder`` that goes on from the run's newest checkpoint."""
    body = spec.model_dump(mode="json")
    body["policies"]["shared"]["model"] = str(folder)
    moved = JobSpec.model_validate(body)
    learner = Learner("shared", moved, AtGrpo(spec.algorithm), device="cpu")
    found = Checkpoints(run_dir, spec).load()
    assert found is not None
    learner.restore(found.learners["shared"])
    return learner


@pytest.mark.parametrize("how", ["weights", "settings"])
@pytest.mark.parametrize("train", ["lora", "full"])
def test_restore_when_the_base_was_replaced_by_one_of_its_shapes_then_refuses(
    tiny_model: Path, tmp_path: Path, how: str, train: str
) -> None:
    policy = {"model": str(tiny_model), "train": {"kind": train}}
    spec = job_spec(tiny_model, policies={"shared": policy})
    learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
    Checkpoints(tmp_path, spec).save(CheckpointContents(1, {"shared": learner.state()}))
    same = _resume(spec, _replaced(tiny_model, tmp_path / "same", "copied"), tmp_path)
    assert same.model.base_digest == learner.model.base_digest
    with pytest.raises(BaseChangedError, match="policy 'shared' was learnt on a model with digest"):
        _resume(spec, _replaced(tiny_model, tmp_path / "other", how), tmp_path)


def test_restore_when_an_older_checkpoint_does_not_name_its_base_then_goes_on(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = job_spec(tiny_model)
    learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
    path = (
        Checkpoints(tmp_path, spec).save(CheckpointContents(1, {"shared": learner.state()}))
        / "state.json"
    )
    body = json.loads(path.read_text())
    assert body.pop("bases") == {"shared": learner.model.base_digest}
    path.write_text(json.dumps(body))
    _resume(spec, _replaced(tiny_model, tmp_path / "other", "weights"), tmp_path)


class Running(Grpo):
    """Takes a running mean off each reward."""

    scale = "none"
    mean = 0.0

    def advantages(self, group: GroupOutcome) -> list[float]:
        found = [c.reward - self.mean for c in group.candidates]
        self.mean = 0.5 * self.mean + 0.5 * sum(c.reward for c in group.candidates) / len(found)
        return found

    def baselines(self) -> Mapping[str, Any]:
        return {"mean": self.mean}

    def restore_baselines(self, baselines: Mapping[str, Any]) -> None:
        self.mean = baselines.get("mean", 0.0)


async def test_team_when_its_algorithm_has_a_running_baseline_then_it_is_checkpointed(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = job_spec(tiny_model, algorithm={"kind": f"{__name__}:Running", "group_size": 4})

    async def load() -> Learners:
        return await Learners.load(spec, tmp_path, device="cpu", threads=1)

    whole, resumed = await load(), await load()
    try:
        first = [g.advantages for g in whole.credit("shared", groups_of_step(0))]
        checkpoints = Checkpoints(tmp_path, spec)
        checkpoints.save(CheckpointContents(1, whole.states(), baselines=whole.baselines()))
        found = checkpoints.load()
        assert found is not None
        assert found.baselines["mean"] != 0.0
        resumed.restore(found.learners, found.baselines)
        later = [
            [g.advantages for g in team.credit("shared", groups_of_step(1))]
            for team in (whole, resumed)
        ]
        assert later[0] == later[1]
        assert first != later[0]
    finally:
        whole.close()
        resumed.close()


def _run_folder(tiny_model: Path, run_dir: Path) -> tuple[JobSpec, Learner]:
    """What a job leaves after three steps."""
    spec = job_spec(tiny_model, checkpoint={"keep_last": 2, "keep_best": 1})
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(spec.model_dump_json())
    algorithm = AtGrpo(spec.algorithm)
    learner = Learner("shared", spec, algorithm, device="cpu")
    checkpoints = Checkpoints(run_dir, spec)
    for step in range(3):
        groups = groups_of_step(step)
        credited = [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]
        learner.step(credited)
        report = {"step": step, "trained_reward_mean": -float(step)}
        checkpoints.save(CheckpointContents(step + 1, {"shared": learner.state()}, [report]))
    return spec, learner


def test_export_when_a_run_is_exported_then_plain_libraries_load_it_and_agree(
    tiny_model: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    from troupe_trainer.model.loading import quiet_peft

    _, learner = _run_folder(tiny_model, tmp_path / "run")
    paths = export(tmp_path / "run", "latest", tmp_path / "out")["shared"]
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    want = learner.model.score(tokens[0].tolist())
    merged = AutoModelForCausalLM.from_pretrained(paths["merged"])
    with quiet_peft():
        base = AutoModelForCausalLM.from_pretrained(tiny_model)
        adapted = PeftModel.from_pretrained(base, paths["adapter"])
    for model in (merged, adapted):
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=tokens).logits[0, :-1], -1)
        got = table.gather(1, tokens[0, 1:, None])[:, 0].tolist()
        assert got == pytest.approx(want, abs=1e-4)


def test_export_when_the_best_or_a_step_is_asked_for_then_takes_that_one(
    tiny_model: Path, tmp_path: Path
) -> None:
    _run_folder(tiny_model, tmp_path / "run")
    for which, step in (("best", 1), ("2", 2), ("latest", 3)):
        export(tmp_path / "run", which, tmp_path / which)
        origin = json.loads((tmp_path / which / "shared" / "checkpoint.json").read_text())
        assert origin == {"job_id": "run", "step": step}
        seats = json.loads((tmp_path / which / "export.json").read_text())["agents"]
        assert seats == {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}}
    with pytest.raises(NotFoundError, match="no checkpoint '7'; there are: step-00003, step-00002"):
        export(tmp_path / "run", "7", tmp_path / "out")
    with pytest.raises(NotFoundError, match="no policy 'coder'; it has shared"):
        export(tmp_path / "run", "latest", tmp_path / "out", ["coder"])
    with pytest.raises(InvalidArgumentError, match="not a step"):
        export(tmp_path / "run", "worst", tmp_path / "out")


def test_export_when_no_best_ones_were_kept_then_there_is_no_best(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    _save(Checkpoints(tmp_path, spec), {1: 0.9, 2: 0.1}, 3)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    with pytest.raises(InvalidArgumentError, match=r"keep_best, which is 0.*name a step: step-"):
        export(tmp_path, "best", tmp_path / "out")


def test_export_when_policies_took_turns_then_there_is_no_best(tmp_path: Path) -> None:
    spec = _spec(
        tmp_path,
        policies={name: {"model": str(tmp_path / "model")} for name in ("a", "b")},
        agents={"tool": {"policy": "a"}, "planner": {"policy": "b"}},
        algorithm={"group_size": 4, "alternate": {"order": ["a", "b"]}},
    )
    _save(Checkpoints(tmp_path, spec), {1: 0.9, 2: 0.1}, 3)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    with pytest.raises(InvalidArgumentError, match=r"alternate.*name a step: step-00003"):
        export(tmp_path, "best", tmp_path / "out")


def _pair(tmp_path: Path, **checkpoint: int) -> JobSpec:
    """Two policies that have a trainer each."""
    agents = {"tool": {"policy": "one"}, "planner": {"policy": "two"}}
    policies = {name: {"model": str(tmp_path / "model")} for name in ("one", "two")}
    return _spec(
        tmp_path,
        agents=agents,
        policies=policies,
        trainer={"per_policy": True},
        checkpoint=checkpoint,
    )


def _two(tmp_path: Path, **checkpoint: int) -> tuple[Checkpoints, Checkpoints]:
    spec = _pair(tmp_path, **checkpoint)
    return Checkpoints(tmp_path, spec, policy="one"), Checkpoints(tmp_path, spec, policy="two")


def _reach(checkpoints: Checkpoints, policy: str, *steps: int) -> None:
    for step in steps:
        states = {policy: LearnerState({"param/w": torch.tensor([float(step)])}, step)}
        report = {"step": step - 1, "trained_reward_mean": None}
        checkpoints.save(
            CheckpointContents(step, states, [report], [(step - 1, {policy: {"g": [0.5]}})])
        )


def _own(run_dir: Path, policy: str) -> list[str]:
    folder = run_dir / "checkpoints" / "policies" / policy
    return sorted(path.name for path in folder.iterdir())


def test_save_when_a_policy_is_behind_then_what_it_needs_of_the_other_stays(
    tmp_path: Path,
) -> None:
    one, two = _two(tmp_path, keep_last=1)
    _reach(one, "one", 1, 2, 3)
    assert _own(tmp_path, "one") == ["step-00001", "step-00002", "step-00003"]
    _reach(two, "two", 1, 2)
    assert _own(tmp_path, "two") == ["step-00002"], "the other has it: nobody goes on from 1"
    _reach(one, "one", 4)
    assert _own(tmp_path, "one") == ["step-00002", "step-00003", "step-00004"]
    body = json.loads((tmp_path / "checkpoints/policies/one/step-00004/state.json").read_text())
    assert body["versions"] == {"one": 4}


def test_load_when_a_life_begins_then_from_the_step_that_every_policy_has(tmp_path: Path) -> None:
    one, two = _two(tmp_path, keep_last=3)
    _reach(one, "one", 1, 2, 3)
    _reach(two, "two", 1, 2)
    within = one.load()
    assert within is not None
    assert within.step == 3
    for checkpoints in (one, two):
        found = checkpoints.load(with_all=True)
        assert found is not None
        assert found.step == 2
    assert _own(tmp_path, "one") == ["step-00001", "step-00002"], "what is newer is learnt again"
    lines = [json.loads(x) for x in (tmp_path / "groups-one.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    assert not (tmp_path / "groups.jsonl").exists()


def test_load_when_a_policy_has_no_checkpoint_then_all_begin_anew(tmp_path: Path) -> None:
    one, two = _two(tmp_path)
    _reach(one, "one", 1)
    assert two.load(with_all=True) is None
    assert one.load(with_all=True) is None
    assert _own(tmp_path, "one") == []
    assert (tmp_path / "groups-one.jsonl").read_text() == ""


def test_load_when_the_common_step_is_torn_then_says_which_folder_to_remove(
    tmp_path: Path,
) -> None:
    one, two = _two(tmp_path)
    _reach(one, "one", 1, 2)
    _reach(two, "two", 1, 2)
    torn = tmp_path / "checkpoints/policies/one/step-00002"
    (torn / "one.safetensors").write_bytes(b"torn")
    with pytest.raises(JobFailedError, match="Remove step-00002 of every policy"):
        one.load(with_all=True)
    within = one.load()
    assert within is not None
    assert within.step == 1, "within a life the policy learns the step again, from its own groups"


def test_go_back_when_another_trainer_took_over_then_nothing_is_removed(tmp_path: Path) -> None:
    one, two = _two(tmp_path)
    _reach(one, "one", 1, 2)
    _reach(two, "two", 1)

    def refuse() -> None:
        raise FencedError("taken over")

    zombie = Checkpoints(tmp_path, _pair(tmp_path), policy="one", admit=refuse)
    with pytest.raises(FencedError):
        zombie.load(with_all=True)
    assert _own(tmp_path, "one") == ["step-00001", "step-00002"]


def test_export_when_policies_have_trainers_then_only_steps_that_all_have(tmp_path: Path) -> None:
    one, two = _two(tmp_path)
    _reach(one, "one", 1, 2)
    _reach(two, "two", 1)
    (tmp_path / "spec.json").write_text(_pair(tmp_path).model_dump_json())
    with pytest.raises(NotFoundError, match="no checkpoint '2'; there are: step-00001"):
        export(tmp_path, "2", tmp_path / "out")
    with pytest.raises(InvalidArgumentError, match="name a step: step-00001"):
        export(tmp_path, "best", tmp_path / "out")
