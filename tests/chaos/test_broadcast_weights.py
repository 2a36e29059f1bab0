"""Full weights by torch.distributed, without files: replicas and trainers that are killed."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_world import succeeded
from platform_world import Platform, run_platform, trained_groups
from process_tree import adopting, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

WITHIN_S = 300.0


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TROUPE_FAULTS_DIR of the platform."""
    return tmp_path_factory.mktemp("broadcast-faults")


@pytest.fixture(scope="module")
def broadcasting(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int], points: Path
) -> Iterator[Platform]:
    """A platform whose trainers send full weights by torch.distributed."""
    more = {"TROUPE_FAULTS_DIR": str(points), "TROUPE_TRAINER_WEIGHTS_VIA": "distributed"}
    with adopting(), run_platform(tmp_path_factory.mktemp("broadcast"), free_port, more) as found:
        yield found


@pytest.fixture(scope="module")
def full(chaos_spec: dict[str, Any]) -> dict[str, Any]:
    """All weights are trained, for two replicas; version 1 is in no checkpoint."""
    shared = {**chaos_spec["policies"]["shared"], "train": {"kind": "full"}, "replicas": 2}
    return {
        **chaos_spec,
        "name": "broadcast",
        "policies": {"shared": shared},
        "checkpoint": {"every": 2},
        "eval": {"num_tasks": 0},
    }


@pytest.fixture(scope="module")
def alone(broadcasting: Platform, full: dict[str, Any]) -> Path:
    """The run folder of the job that nothing happens to."""
    with broadcasting.client() as client:
        run_dir = succeeded(broadcasting, client.submit(full).job_id)
    assert list((run_dir / "publish").rglob("*.safetensors")) == []
    return run_dir


@pytest.mark.parametrize(
    "point",
    [
        "rollout.weights_begun@1",
        "rollout.weights_staged@1",
        "rollout.activated@1",
        "trainer.weights_staged@1",
        "trainer.version_committed@1",
    ],
)
def test_job_when_a_process_dies_in_a_broadcast_then_learns_the_same_without_a_file(
    broadcasting: Platform, points: Path, full: dict[str, Any], alone: Path, point: str
) -> None:
    (points / point).touch()
    with broadcasting.client() as client:
        job_id = client.submit(full).job_id
    standing: list[Path] = []

    def stands() -> bool:
        standing[:] = points.glob(f"{point}.*")
        return bool(standing)

    wait_for(f"a process to stand at {point}", stands, within_s=WITHIN_S)
    os.kill(int(standing[0].name.rpartition(".")[2]), signal.SIGKILL)
    standing[0].unlink()
    run_dir = succeeded(broadcasting, job_id)
    assert list((run_dir / "publish").rglob("*.safetensors")) == []
    assert trained_groups(run_dir) == trained_groups(alone)
    assert trained(run_dir) == trained(alone)


def trained(run_dir: Path) -> bytes:
    """The last checkpoint's weights."""
    return max((run_dir / "checkpoints").glob("step-*/shared.safetensors")).read_bytes()
