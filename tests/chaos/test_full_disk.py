"""Full file systems, real ones: whoever meets ENOSPC first, the job waits and goes on by itself.

The quick share runs with all tests, the rest by `make chaos`; both need root, to mount.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import DISKS, QUICK_DISK, REDIS_ELSEWHERE, Case
from full_disk_world import SIZE_BYTES, FullDiskWorld
from platform_world import Platform, run_platform
from process_tree import descendants
from small_disk import Ballast, small_disk
from wired_world import Valkey


@pytest.fixture(scope="module")
def disk_faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TROUPE_FAULTS_DIR, on a disk with room."""
    return tmp_path_factory.mktemp("disk-faults")


@pytest.fixture(scope="module")
def on_small_disk(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    disk_faults: Path,
    results: Path | None,
) -> Iterator[FullDiskWorld]:
    """A platform whose run folders and Redis share a small disk."""
    _ = undisturbed
    elders = frozenset(descendants(os.getpid()))
    with small_disk(tmp_path_factory.mktemp("small-disk"), SIZE_BYTES) as folder:
        more = {"TROUPE_FAULTS_DIR": str(disk_faults)}
        with run_platform(folder, free_port, more) as platform:
            yield made(platform, disk_faults, results, elders)


@pytest.fixture(scope="module")
def beside_small_disk(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    disk_faults: Path,
    results: Path | None,
) -> Iterator[FullDiskWorld]:
    """A platform whose Redis lies elsewhere, so that somebody else meets the full disk first."""
    _ = undisturbed
    valkey = Valkey(free_port(), tmp_path_factory.mktemp("valkey-elsewhere"))
    valkey.start()
    elders = frozenset(descendants(os.getpid()))
    more = {
        "TROUPE_FAULTS_DIR": str(disk_faults),
        "TROUPE_REDIS_URL": f"redis://127.0.0.1:{valkey.port}/0",
    }
    try:
        with (
            small_disk(tmp_path_factory.mktemp("small-disk-2"), SIZE_BYTES) as folder,
            run_platform(folder, free_port, more) as platform,
        ):
            world = made(platform, disk_faults, results, elders)
            world.kept = ("router",)
            yield world
    finally:
        valkey.stop()


def made(
    platform: Platform, faults: Path, results: Path | None, elders: frozenset[int]
) -> FullDiskWorld:
    world = FullDiskWorld(platform, faults, results, elders)
    world.ballast = Ballast(platform.folder)
    return world


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_job_when_the_disk_is_full_then_waits_says_so_and_goes_on_by_itself(
    on_small_disk: FullDiskWorld, chaos_spec: dict[str, Any], undisturbed: Path
):
    assert on_small_disk.run(QUICK_DISK, chaos_spec, undisturbed).faults == []


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", DISKS, ids=lambda case: case.id)
def test_job_when_its_disk_and_that_of_redis_is_full_then_ends_as_if_nothing_happened(
    on_small_disk: FullDiskWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert on_small_disk.run(case, chaos_spec, undisturbed).faults == []


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", REDIS_ELSEWHERE, ids=lambda case: case.id)
def test_job_when_its_disk_alone_is_full_then_ends_as_if_nothing_happened(
    beside_small_disk: FullDiskWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert beside_small_disk.run(case, chaos_spec, undisturbed).faults == []
