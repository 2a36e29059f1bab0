"""``trainer.gpus``: a job whose trainer has two ranks, here two processes of the CPU."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from chaos_world import succeeded
from platform_world import Platform, trained_groups
from process_tree import wait_for

from troupe.runtime.run_folder import part_names
from troupe_trainer.model.stored import StoredTensors

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

WITHIN_S = 400.0


@pytest.fixture(scope="module")
def both_kinds(chaos_spec: dict[str, Any]) -> dict[str, Any]:
    """An adapter and full weights, in one trainer."""
    shared = chaos_spec["policies"]["shared"]
    full = {**shared, "train": {"kind": "full"}}
    return {
        **chaos_spec,
        "name": "ranks",
        "steps": 2,
        "agents": {name: {"policy": name} for name in ("tool", "planner")},
        "policies": {"tool": shared, "planner": full},
        "eval": {"num_tasks": 0},
    }


@pytest.fixture(scope="module")
def alone(platform: Platform, both_kinds: dict[str, Any]) -> Path:
    """The run folder of the job with one rank."""
    with platform.client() as client:
        return succeeded(platform, client.submit(both_kinds).job_id)


def followers(platform: Platform, job_id: str) -> list[int]:
    """The ranks above 0: children of the trainer's process."""
    try:
        trainer = platform.pid_of(job_id, "trainer-0")
        tasks = list(Path(f"/proc/{trainer}/task").glob("*/children"))
        children = [int(pid) for task in tasks for pid in task.read_text().split()]
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    except (FileNotFoundError, TypeError, ProcessLookupError):
        return []
    return [pid for pid, line in lines.items() if b"troupe_trainer.learn.follower" in line]


def state(checkpoint: Path, policy: str) -> StoredTensors:
    """A policy's state, of one file or of a part for each rank."""
    parts = sorted(checkpoint.glob(f"{policy}.*safetensors"))
    assert [part.name for part in parts] == part_names(policy, len(parts))
    return StoredTensors(parts)


def differences(one: Path, other: Path, step: int = 2) -> list[float]:
    """The largest difference of each trained tensor in two jobs' checkpoints."""
    found: list[float] = []
    for policy in ("tool", "planner"):
        got, want = (state(run / f"checkpoints/step-{step:05d}", policy) for run in (one, other))
        assert got.keys() == want.keys()
        names = [name for name in got if name.startswith("param/")]
        found += [float((got[name] - want[name]).abs().max()) for name in names]
        assert all(torch.isfinite(got[name]).all() for name in names)
    return found


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.chaos)])
def test_job_when_its_trainer_has_two_gpus_then_two_ranks_learn_what_one_learns(
    platform: Platform, both_kinds: dict[str, Any], alone: Path, is_killed: bool
) -> None:
    with platform.client() as client:
        job_id = client.submit({**both_kinds, "trainer": {"gpus": 2}}).job_id
    wait_for("the second rank", lambda: len(followers(platform, job_id)) == 1, within_s=WITHIN_S)
    if is_killed:
        [rank] = followers(platform, job_id)
        os.kill(rank, signal.SIGKILL)
        wait_for(
            "another second rank",
            lambda: any(pid != rank for pid in followers(platform, job_id)),
            within_s=WITHIN_S,
        )
    run_dir = succeeded(platform, job_id)
    assert trained_groups(run_dir) == trained_groups(alone)
    assert 0.0 < max(differences(run_dir, alone)) < 2e-4
