"""Files of earlier trainers' versions: which a committed one replaces."""

from pathlib import Path
from typing import Any

from troupe_trainer.checkpoint.export import file_name
from troupe_trainer.publish.versions import Versions


def test_files_when_a_policys_name_continues_anothers_then_each_forgets_its_own_alone(
    tmp_path: Path,
) -> None:
    earlier = tmp_path / "1"
    earlier.mkdir()
    for policy in ("coder", "coder-v2"):
        (earlier / file_name(policy, 7)).touch()
    unused: Any = None
    versions = Versions("job", unused, unused, unused, tmp_path, unused, unused, epoch=2)
    versions._forget_predecessors("coder")
    assert [path.name for path in earlier.iterdir()] == [file_name("coder-v2", 7)]
    versions._forget_predecessors("coder-v2")
    assert list(earlier.iterdir()) == []
