"""The power goes: every process ends in one moment, and every write that was not synced is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from chaos_cases import POWER_CUTS, QUICK_POWER_CUT, Case
from platform_world import run_platform
from power_cut import LossyDisk
from powerless_world import PowerlessWorld
from process_tree import adopting, descendants

pytestmark = pytest.mark.timeout(1200)
_WRITER = """
import os, sys
from pathlib import Path
from troupe.durable import append, replace_file, make_folder

root = Path(sys.argv[1])
make_folder(root / "kept/deep")
append(root / "kept/record", 0, b"0123456789")
with (root / "kept/record").open("ab") as file:
    file.write(b"lost")
replace_file(root / "kept/whole", "old")
(root / "kept/draft").write_text("new")
(root / "kept/draft").rename(root / "kept/whole")
(root / "unnamed").write_text("its folder was not synced")
with (root / "kept/sparse").open("w") as file:
    file.write("the name was not synced")
    file.flush()
    os.fsync(file.fileno())
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> LossyDisk:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: install cc to lose what was not synced")
    folder = tmp_path_factory.mktemp("power")
    (folder / "root").mkdir()
    found = LossyDisk(folder / "root", folder / "work")
    if not found.identify(folder):
        pytest.skip(f"the file system of {folder} tells no time of birth (statx)")
    return found


@pytest.fixture(scope="module")
def powerless(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    undisturbed: Path,
    disk: LossyDisk,
    results: Path | None,
) -> Iterator[PowerlessWorld]:
    """A platform of its own; the undisturbed run has passed by then."""
    _ = undisturbed
    elders = frozenset(descendants(os.getpid()))
    faults = tmp_path_factory.mktemp("powerless-faults")
    more = {"TROUPE_FAULTS_DIR": str(faults), **disk.environment}
    with adopting(), run_platform(disk.root, free_port, more) as platform:
        yield PowerlessWorld(platform, faults, results, elders, disk)


@pytest.mark.e2e
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_disk_when_cut_then_what_was_synced_is_there_and_the_rest_is_not_promised(
    tmp_path: Path, disk: LossyDisk, seed: int | None
):
    (tmp_path / "root").mkdir()
    own = LossyDisk(tmp_path / "root", tmp_path / "work")
    writing = [sys.executable, "-c", _WRITER, str(own.root)]
    subprocess.run(writing, env=os.environ | own.environment, check=True, timeout=60)
    own.cut(None if seed is None else Random(seed))
    kept = own.root / "kept"
    record, whole = (kept / "record").read_bytes(), (kept / "whole").read_bytes()
    assert (kept / "deep").is_dir()
    assert record.startswith(b"0123456789")
    if seed is None:
        assert (record, whole) == (b"0123456789", b"old")
        assert sorted(path.name for path in kept.iterdir()) == ["deep", "record", "whole"]
        assert not (own.root / "unnamed").exists()


@pytest.mark.e2e
def test_job_when_the_power_goes_then_ends_as_if_nothing_happened(
    powerless: PowerlessWorld, chaos_spec: dict[str, Any], undisturbed: Path
):
    assert powerless.run(QUICK_POWER_CUT, chaos_spec, undisturbed).faults == []


@pytest.mark.chaos
@pytest.mark.parametrize("case", POWER_CUTS, ids=lambda case: case.id)
def test_job_when_the_power_goes_anywhere_then_ends_as_if_nothing_happened(
    powerless: PowerlessWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    assert powerless.run(case, chaos_spec, undisturbed).faults == []
