"""An algorithm from another package, found by its entry point as pip would install it."""

import asyncio
import importlib
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe import plugins
from troupe.episodes.dryrun import dry_run
from troupe.spec.load import load_spec

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugins" / "median_grpo"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package on the path, with the metadata that an install writes."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / f"median_grpo-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"]["troupe.algorithms"]
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (folder / "entry_points.txt").write_text(f"[troupe.algorithms]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("median_grpo", None)


def test_plugin_when_installed_then_a_spec_finds_it_and_plays(installed: None) -> None:
    assert "median_grpo" in plugins.registered(plugins.ALGORITHMS)
    spec = load_spec(EXAMPLE / "train.yaml")
    found = asyncio.run(dry_run(spec, num_tasks=3))
    pairs = [
        ([c.reward for c in group.candidates], advantages)
        for episode in found
        for group, advantages in zip(episode.played.groups, episode.advantages, strict=True)
    ]
    assert any(any(advantages) for _, advantages in pairs)
    for rewards, advantages in pairs:
        better = sum(reward > sorted(rewards)[len(rewards) // 2] for reward in rewards)
        assert sum(advantage > 0 for advantage in advantages) >= better
        assert len(advantages) == 8


def test_plugin_when_its_own_tests_are_run_then_they_pass(installed: None) -> None:
    own = runpy.run_path(str(EXAMPLE / "tests" / "test_median_grpo.py"))
    checks = [check for name, check in own.items() if name.startswith("test_")]
    assert len(checks) == 3
    for check in checks:
        check()


def test_plugin_when_measured_then_is_less_than_60_lines() -> None:
    source = (EXAMPLE / "src" / "median_grpo" / "__init__.py").read_text()
    assert len(source.splitlines()) < 60
