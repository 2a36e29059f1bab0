"""What REST lists where an installed package's code raises: the fault's kind, never its text."""

from pathlib import Path

import pytest

from troupe_router.rest.routes.catalogue import family


def test_task_when_its_package_raises_then_the_list_has_neither_its_text_nor_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "leaky.py").write_text("KEYS = {'a': 1}['sk-secret']\n")
    folder = tmp_path / "leaky-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[troupe.tasks]\nleaky = leaky:Leaky\n")
    error = family("leaky").error or ""
    assert "cannot be imported: KeyError (the service's log says where); correct" in error
    assert "sk-secret" not in error
