"""A run folder to which each policy's trainer wrote its own part."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from troupe.clients.rest.models.checkpoints import CheckpointList
from troupe.errors import NotFoundError
from troupe.runtime.run_folder import checkpoints_folder, groups_file
from troupe.spec import JobSpec, parse_spec
from troupe_router.run.checkpoints import archive, checkpoint_list
from troupe_router.run.trained_groups import trained_advantages, trained_counts


def spec(**trainer: bool) -> JobSpec:
    full = {"kind": "full"}
    return parse_spec(
        {
            "name": "two",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"]},
            "agents": {"tool": {"policy": "one"}, "planner": {"policy": "two"}},
            "policies": {"one": {"model": "m"}, "two": {"model": "n", "train": full}},
            "trainer": trainer,
        }
    )


APART = spec(per_policy=True)


def lay(run_dir: Path, policy: str, step: int, trainer: str) -> None:
    folder = checkpoints_folder(run_dir, trainer) / f"step-{step:05d}"
    folder.mkdir(parents=True, exist_ok=True)
    body = {"step": step, "versions": {policy: step}}
    (folder / "state.json").write_text(json.dumps(body))
    (folder / f"{policy}.safetensors").write_bytes(f"{policy} {step}".encode())


def shown(listed: CheckpointList) -> list[tuple[str, list[tuple[str, int]]]]:
    return [(c.id, [(p.policy, p.version) for p in c.policies]) for c in listed.checkpoints]


def test_checkpoints_when_each_policy_has_its_own_then_listed_by_step(tmp_path: Path) -> None:
    for policy, steps in (("one", (1, 2)), ("two", (1,))):
        for step in steps:
            lay(tmp_path, policy, step, policy)
    assert shown(checkpoint_list(tmp_path, APART)) == [
        ("step-00002", [("one", 2)]),
        ("step-00001", [("one", 1), ("two", 1)]),
    ]
    packed = archive(tmp_path, APART, "step-00001", "two", "state")
    with tarfile.open(fileobj=io.BytesIO(b"".join(packed.chunks()))) as tar:
        (member,) = tar.getmembers()
        file = tar.extractfile(member)
        assert file is not None
        assert file.read() == b"two 1"
    with pytest.raises(NotFoundError, match="step-00002 has no policy 'two'; it has one"):
        archive(tmp_path, APART, "step-00002", "two", "state")


def test_checkpoints_when_there_is_one_trainer_then_they_are_where_they_were(
    tmp_path: Path,
) -> None:
    for policy in ("one", "two"):
        lay(tmp_path, policy, 3, "")
    assert [name for name, _ in shown(checkpoint_list(tmp_path, spec()))] == ["step-00003"]
    assert checkpoint_list(tmp_path, APART).checkpoints == []


def write(run_dir: Path, policy: str, trainer: str, *steps: int) -> None:
    line = {"policy": policy, "group_ids": [f"g-{policy}"], "advantages": [[0.5, -0.5]]}
    with groups_file(run_dir, trainer).open("a") as file:
        file.writelines(f"{json.dumps({'step': step, **line})}\n" for step in steps)


def test_groups_when_one_policy_is_ahead_then_the_step_is_not_covered(tmp_path: Path) -> None:
    write(tmp_path, "one", "one", 0, 1)
    write(tmp_path, "two", "two", 0)
    both = {"g-one": [0.5, -0.5], "g-two": [0.5, -0.5]}
    assert trained_advantages(tmp_path, APART, 0) == both
    assert trained_advantages(tmp_path, APART, 1) is None
    assert trained_counts(tmp_path, APART, 1) == {"one": 1}
    assert trained_advantages(tmp_path, spec(), 0) is None
