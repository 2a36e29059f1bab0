"""What is told of a file that is no prepared data: where, and nothing of what it holds."""

from pathlib import Path

import pytest

from troupe.data.prepared import PreparedRows
from troupe.errors import InvalidArgumentError
from troupe_tasks.math.row import MathRow


@pytest.mark.parametrize(
    "line",
    [
        '{"auths": {"registry": "TOP-SECRET"}}',
        '{"id": {"TOP-SECRET": 1}, "answer": ["TOP-SECRET"], "TOP-SECRET": 2}',
        '{"id": "a", "problem": "a", "answer": "a", "source": "a", "TOP-SECRET": 2}',
        "TOP-SECRET: not JSON",
        '"TOP-SECRET"',
        "[" * 100_000,
    ],
)
def test_row_when_it_is_of_another_file_then_its_content_is_not_told(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "other.json").write_text(f"{line}\n")
    with pytest.raises(InvalidArgumentError, match="row 0: not a MathRow") as caught:
        PreparedRows(tmp_path / "other.json", MathRow)[0]
    assert "SECRET" not in str(caught.value)
