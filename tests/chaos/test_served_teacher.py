"""A teacher on a rollout replica teaches what it teaches in the trainer, also after its death."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from chaos_world import succeeded
from platform_world import Platform, make_tiny_base, trained_bytes, trained_groups
from process_tree import wait_for

from troupe.clients.rest import TERMINAL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

WITHIN_S = 300.0
POINT = "rollout.completions_scored"
"""The teacher's replica has scored completions, and nobody has its answer yet."""
LEARNING = "trainer.learning@1"
"""The optimizer step of step 1: its checkpoint is not there."""


@pytest.fixture(scope="module")
def taught(chaos_spec: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Adapters of the tiny base, taught by a deeper one."""
    teacher = make_tiny_base(tmp_path_factory.mktemp("models") / "teacher", num_layers=3)
    policy = {"teacher": str(teacher), "teacher_replicas": 1}
    return {
        **chaos_spec,
        "name": "taught",
        "policies": {"shared": chaos_spec["policies"]["shared"] | policy},
        "algorithm": {"kind": "distill", "group_size": 4, "params": {"sampling": "tree"}},
        "eval": {"num_tasks": 4},
    }


@pytest.fixture(scope="module")
def undisturbed(platform: Platform, taught: dict[str, Any]) -> Path:
    """The run folder of the job that nothing happens to."""
    with platform.client() as client:
        job_id = client.submit(taught).job_id
    return succeeded(platform, job_id)


@pytest.fixture
def no_faults(faults: Path) -> Iterator[Path]:
    """The folder of the faults, empty again in the end."""
    yield faults
    for left in [*faults.glob("rollout.*"), *faults.glob("trainer.*")]:
        suffix = left.name.rpartition(".")[2]
        with suppress(ProcessLookupError):
            if suffix.isdecimal():
                os.kill(int(suffix), signal.SIGCONT)
        left.unlink(missing_ok=True)


def steps(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "train"]


def test_job_when_a_replica_serves_its_teacher_then_learns_as_from_one_in_the_trainer(
    platform: Platform, taught: dict[str, Any], undisturbed: Path
) -> None:
    policy = {k: v for k, v in taught["policies"]["shared"].items() if k != "teacher_replicas"}
    with platform.client() as client:
        beside = client.submit({**taught, "policies": {"shared": policy}}).job_id
    served, in_trainer = steps(undisturbed), steps(succeeded(platform, beside))
    assert len(served) == len(in_trainer) == taught["steps"]
    assert not any(line["groups_dropped"] or line["is_flat"] for line in served)
    assert served[0]["kl_teacher"] != 0.0
    for name in ("kl_teacher", "loss"):
        assert served[0][name] == pytest.approx(in_trainer[0][name], rel=1e-3, abs=1e-4)
    names = {path.name for path in (undisturbed / "logs").glob("rollout-*.log")}
    assert names == {"rollout-shared-0.log", "rollout-shared-teacher-0.log"}


def test_teacher_when_its_replica_is_killed_in_a_round_then_every_group_has_its_scores(
    platform: Platform, no_faults: Path, taught: dict[str, Any], undisturbed: Path
) -> None:
    (no_faults / POINT).touch()
    with platform.client() as client:
        job_id = client.submit(taught).job_id
    standing: list[Path] = []

    def stands() -> bool:
        standing[:] = no_faults.glob(f"{POINT}.*")
        return bool(standing)

    wait_for(f"the teacher's replica to stand at {POINT}", stands, within_s=WITHIN_S)
    pid = platform.pid_of(job_id, "rollout-shared-teacher-0")
    assert standing[0].name.endswith(f".{pid}")
    standing[0].unlink()
    os.kill(pid, signal.SIGKILL)
    run_dir = succeeded(platform, job_id)
    assert not any(line["groups_dropped"] for line in steps(run_dir))
    assert trained_bytes(run_dir) == trained_bytes(undisturbed)


@pytest.mark.slow
def test_job_when_answers_go_on_with_newer_weights_then_each_is_scored_by_the_same_teacher(
    platform: Platform, taught: dict[str, Any]
) -> None:
    ahead = {"max_staleness": 1, "updates_in_flight": True, "steps": 6}
    algorithm = taught["algorithm"] | {"loss": {"importance": {}}}
    with platform.client() as client:
        job_id = client.submit({**taught, **ahead, "algorithm": algorithm}).job_id
    trained = steps(succeeded(platform, job_id))
    assert len(trained) == 6
    assert max(line["staleness_mean"] for line in trained) > 0
    assert not any(line["groups_dropped"] or line["is_flat"] for line in trained)


@pytest.mark.slow
def test_job_when_cancelled_in_a_step_and_resumed_then_ends_with_the_same_bits(
    platform: Platform, no_faults: Path, taught: dict[str, Any], undisturbed: Path
) -> None:
    (no_faults / LEARNING).touch()
    with platform.client() as client:
        job_id = client.submit(taught).job_id
        wait_for(
            f"the trainer to stand at {LEARNING}",
            lambda: bool([*no_faults.glob(f"{LEARNING}.*")]),
            within_s=WITHIN_S,
        )
        client.cancel(job_id)
        wait_for(
            f"the end of {job_id}", lambda: client.job(job_id).state in TERMINAL, within_s=WITHIN_S
        )
        assert [line["step"] for line in steps(platform.run_dir(job_id))] == [0]
        client.resume(job_id)
    run_dir = succeeded(platform, job_id)
    assert [line["step"] for line in steps(run_dir)] == list(range(taught["steps"]))
    assert trained_groups(run_dir) == trained_groups(undisturbed)
    assert trained_bytes(run_dir) == trained_bytes(undisturbed)


@pytest.mark.slow
def test_job_when_it_learns_while_the_round_is_played_then_ends_with_the_same_bits(
    platform: Platform, taught: dict[str, Any], undisturbed: Path
) -> None:
    with platform.client() as client:
        job_id = client.submit({**taught, "batch": {"overlap": True}}).job_id
    run_dir = succeeded(platform, job_id)
    assert sum(line["learned_ahead_s"] for line in steps(run_dir)) > 0.0
    assert trained_groups(run_dir) == trained_groups(undisturbed)
    assert trained_bytes(run_dir) == trained_bytes(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["student", "partner"])
def test_job_when_two_policies_share_the_server_of_a_teacher_then_each_is_taught(
    platform: Platform, taught: dict[str, Any], planner: str
) -> None:
    student = taught["policies"]["shared"]
    long = "a" * 40  # as a policy's name may be; the name of its teacher is longer
    others = {
        "student": {**student, "train": {"kind": "full"}},
        "partner": {"model": student["teacher"], "frozen": True},
    }
    params = {"sampling": "parallel", "reward_coef": 0.5}
    spec = {
        **taught,
        "name": "two",
        "agents": {"tool": {"policy": long}, "planner": {"policy": planner}},
        "policies": {long: student, planner: others[planner]},
        "algorithm": {"kind": "distill", "group_size": 4, "params": params},
        "trainer": {"per_policy": planner == "student"},
    }
    with platform.client() as client:
        job_id = client.submit(spec).job_id
    run_dir = succeeded(platform, job_id)
    processes = {path.stem for path in (run_dir / "logs").glob("rollout-*.log")}
    teacher = {"student": f"{long}-teacher", "partner": "partner"}[planner]
    own = {"student": {"rollout-student-0"}, "partner": set[str]()}[planner]
    assert processes == {f"rollout-{long}-0", f"rollout-{teacher}-0", *own}
    learning = [long, "student"] if planner == "student" else [long]
    for line in steps(run_dir):
        assert not line["groups_dropped"]
        assert all(line["by_policy"][policy]["kl_teacher"] for policy in learning)
