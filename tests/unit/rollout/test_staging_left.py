"""What killed lives left in the folders of staging and servers goes at the next start."""

import os
import subprocess
import sys
from pathlib import Path

from troupe_rollout.engines.sglang.files import WorkFolder
from troupe_rollout.staging import StagingArea

_LIFE = """
import sys
from pathlib import Path
from troupe_rollout.staging import StagingArea
area = StagingArea(sys.argv[1], max_bytes=1, max_uploads=1, chunk_timeout_s=1)
area.open()
print("open", flush=True)
sys.stdin.read()
"""


def area(folder: Path) -> StagingArea:
    return StagingArea(str(folder), max_bytes=1, max_uploads=1, chunk_timeout_s=1)


def test_folder_when_its_process_was_killed_then_goes_and_a_living_ones_stays(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _LIFE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        [theirs] = tmp_path.iterdir()
        (theirs / "upload").mkdir()
        (theirs / "upload" / "weights.safetensors").write_bytes(b"0")
        beside = area(tmp_path)
        beside.open()
        assert theirs in (found := set(tmp_path.iterdir())) and len(found) == 2
        beside.close()
    finally:
        process.kill()
        process.communicate()
    last = area(tmp_path)
    last.open()
    assert theirs not in (left := list(tmp_path.iterdir())) and len(left) == 1
    last.close()
    assert list(tmp_path.iterdir()) == []


def test_link_of_that_name_when_left_by_another_then_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "troupe-staging-x").symlink_to(tmp_path / "kept")
    staging = area(tmp_path)
    staging.open()
    staging.close()
    assert (tmp_path / "kept" / "file").exists()


def test_work_folder_when_old_and_its_engine_lives_then_stays_and_a_leftover_goes(
    tmp_path: Path,
) -> None:
    old, new = WorkFolder(str(tmp_path)), WorkFolder(str(tmp_path))
    os.utime(kept := old.path, (0, 0))
    (tmp_path / f"{kept.name.rpartition('-')[0]}-left").mkdir()
    assert {new.path, kept} == set(tmp_path.iterdir())
    old.close()
    new.close()
    assert list(tmp_path.iterdir()) == []
