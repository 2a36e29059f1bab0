"""Names of checkpoints: what trainers and users may leave beside them is none."""

from pathlib import Path

import pytest

from troupe.runtime.run_folder import newest_first, step_name, step_of


def test_checkpoints_when_other_things_lie_beside_them_then_are_found_alone(
    tmp_path: Path,
) -> None:
    beside = ("step-foo", "step-", "step-7", "step-000009", "step-00007-old", ".staging-0-step-8")
    for name in ("step-00002", "step-123456", "step-00010", *beside):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00011").write_text("a file")
    (tmp_path / "step-00012").symlink_to(tmp_path / "step-00010")
    found = newest_first(tmp_path)
    assert [path.name for path in found] == ["step-123456", "step-00010", "step-00002"]
    assert [step_of(path) for path in found] == [123456, 10, 2]
    assert newest_first(tmp_path / "none") == []


@pytest.mark.parametrize("step", [0, 12, 99_999, 100_000])
def test_step_when_named_then_is_read_back(step: int) -> None:
    assert step_of(Path(step_name(step))) == step


def test_step_when_the_name_is_no_checkpoints_then_raises() -> None:
    with pytest.raises(ValueError, match="'step-foo' does not name a checkpoint"):
        step_of(Path("a/step-foo"))
