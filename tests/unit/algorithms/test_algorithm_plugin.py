"""An algorithm from another package, found by its entry point as pip would install it."""

import asyncio
import importlib
import math
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, create_model

from troupe import plugins
from troupe.algorithms.algorithm import Needs
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.load import load_algorithm
from troupe.episodes.dryrun import dry_run
from troupe.errors import InvalidArgumentError
from troupe.samplers.sampler import Sampler
from troupe.samplers.tree import TreeSampler
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import WorkflowSpec
from troupe.spec.load import load_spec
from troupe.spec.reward import RewardSpec
from troupe.workflows.load import load_workflow

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


def test_plugin_when_installed_while_running_then_the_next_spec_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "added" not in plugins.registered(plugins.ALGORITHMS)
    with pytest.raises(InvalidArgumentError, match="no algorithm is called 'added'"):
        plugins.load(plugins.ALGORITHMS, "added")
    folder = tmp_path / "added-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[troupe.algorithms]\nadded = math:floor\n")
    assert plugins.load(plugins.ALGORITHMS, "added") is math.floor


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
    assert len(checks) == 4
    for check in checks:
        check()


def test_plugin_when_measured_then_is_less_than_60_lines() -> None:
    source = (EXAMPLE / "src" / "median_grpo" / "__init__.py").read_text()
    assert len(source.splitlines()) < 60


@pytest.mark.parametrize(
    ("params", "pointer", "words"),
    [
        ({"min_sprad": 1}, "/algorithm/params/min_sprad", "did you mean 'min_spread'"),
        ({"min_spread": -1}, "/algorithm/params/min_spread", "greater than or equal to 0"),
    ],
)
def test_plugin_when_its_parameters_are_wrong_then_a_pointer_and_a_hint(
    installed: None, params: dict[str, float], pointer: str, words: str
) -> None:
    with pytest.raises(SpecInvalidError, match=words) as caught:
        load_algorithm(AlgorithmSpec(kind="median_grpo", params=params))
    assert caught.value.pointer == pointer


def test_plugin_when_its_parameters_are_given_then_it_has_them(installed: None) -> None:
    made: Any = load_algorithm(AlgorithmSpec(kind="median_grpo", params={"min_spread": 0.5}))
    assert made.params.min_spread == 0.5
    plain: Any = load_algorithm(AlgorithmSpec(kind="median_grpo"))
    assert plain.params.min_spread == 0.0


class Power(GroupRelative):
    """Its parameters are a plain pydantic model, which by itself ignores unknown ones."""

    class Params(BaseModel):
        power: float = 1.0


class Open(GroupRelative):
    class Params(BaseModel):
        model_config = ConfigDict(extra="allow")


def test_plugin_when_its_model_is_plain_then_a_misspelt_parameter_is_refused() -> None:
    kind = f"{__name__}:Power"
    made: Any = load_algorithm(AlgorithmSpec(kind=kind, params={"power": 2}))
    assert made.params.power == 2.0
    with pytest.raises(SpecInvalidError, match="did you mean 'power'") as caught:
        load_algorithm(AlgorithmSpec(kind=kind, params={"powr": 2}))
    assert caught.value.pointer == "/algorithm/params/powr"


def test_plugin_when_its_model_takes_any_parameter_then_it_has_them() -> None:
    made: Any = load_algorithm(AlgorithmSpec(kind=f"{__name__}:Open", params={"powr": 2}))
    assert made.params.powr == 2


class Nested(GroupRelative):
    """An algorithm with a parameter that takes anything."""

    Params = create_model(
        "Params", notes=(create_model("Notes", __config__={"extra": "allow"}), ...)
    )


def test_plugin_when_a_parameter_takes_any_field_then_it_has_them() -> None:
    params = {"notes": {"of": "mine"}}
    made: Any = load_algorithm(AlgorithmSpec(kind=f"{__name__}:Nested", params=params))
    assert made.params.notes.of == "mine"
    with pytest.raises(SpecInvalidError, match="unknown field"):
        load_algorithm(AlgorithmSpec(kind=f"{__name__}:Nested", params={**params, "note": 1}))


class Partial:
    """Neither advantages nor a loss."""

    needs = Needs()
    aggregation = "token"

    def __init__(self, spec: AlgorithmSpec) -> None: ...

    def sampler(self) -> Sampler:
        return TreeSampler(4)

    def across_groups(self, groups: Any, advantages: Any) -> Any:
        return advantages


class BadNeeds(GroupRelative):
    @property
    def needs(self) -> Needs:
        raise KeyError("old")


class BadSampler(GroupRelative):
    def sampler(self) -> Sampler:
        raise ValueError("no sampler today")


class OtherSampler(GroupRelative):
    def sampler(self) -> Any:
        return object()


class OtherNeeds(GroupRelative):
    needs: Any = frozenset({"old"})


class Tokens(GroupRelative):
    aggregation: Any = "tokens"


class Trees(GroupRelative):
    sampling: Any = "trees"


class MethodNeeds(GroupRelative):
    def needs(self) -> Any:  # not a property
        return Needs()


class AttributeSampler(GroupRelative):
    sampler: Any = TreeSampler(4)


class Delegating:
    """Its hooks are not on the class, where the trainer looks for them."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        self._inner = GroupRelative(spec)

    needs = property(lambda self: self._inner.needs)
    sampler = property(lambda self: self._inner.sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Unmade(GroupRelative):
    def __init__(self, spec: AlgorithmSpec) -> None:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Partial", "'Partial' has no method advantages, loss; derive it from troupe.Group"),
        ("Delegating", "'Delegating' has no method advantages, across_groups, loss"),
        ("MethodNeeds", r"needs \(at .*, line \d+\) gave a method; make it a property"),
        ("AttributeSampler", r"sampler raised TypeError: 'TreeSampler' object is not callable"),
        ("BadNeeds", r"needs raised KeyError: 'old' \(at .*, line \d+, in needs: `raise KeyError"),
        ("BadSampler", r"sampler raised ValueError: no sampler today \(at .*, in sampler"),
        ("OtherSampler", r"sampler \(at .*\) gave a object without num_trajectories, .*, choose"),
        ("OtherNeeds", r"needs gave a frozenset; make it a property .* that gives Needs"),
        ("Tokens", "aggregation gave 'tokens'; .* gives one of token, sequence, sequence_sum"),
        ("Trees", "'Trees': sampling gave 'trees'; make it 'tree' or 'parallel'"),
        ("Unmade", r"cannot be made: RuntimeError: not today \(at .*, in __init__"),
    ],
)
def test_plugin_when_a_hook_that_is_read_at_once_fails_then_it_is_refused(
    name: str, words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        load_algorithm(AlgorithmSpec(kind=f"{__name__}:{name}"))
    assert caught.value.pointer == "/algorithm/kind"


class Waits:
    """A workflow with a parameter."""

    Params = create_model("Params", __config__={"extra": "forbid"}, rounds=(int, 1))

    def __init__(self, spec: WorkflowSpec, params: Any) -> None:
        self.rounds = params.rounds

    async def run(self, team: Any, env: Any) -> None: ...


def test_workflow_when_it_declares_parameters_then_they_are_checked_and_passed() -> None:
    kind = f"{__name__}:Waits"
    made: Any = load_workflow(WorkflowSpec(kind=kind, order=["a"], params={"rounds": 3}))
    assert made.rounds == 3
    with pytest.raises(SpecInvalidError, match="did you mean 'rounds'") as caught:
        load_workflow(WorkflowSpec(kind=kind, order=["a"], params={"round": 3}))
    assert caught.value.pointer == "/workflow/params/round"


@pytest.mark.parametrize("kind", ["turn_based", "self_play", "simultaneous"])
def test_workflow_when_it_has_no_parameters_then_given_ones_are_refused(kind: str) -> None:
    with pytest.raises(SpecInvalidError, match=f"'{kind}' has no parameters") as caught:
        load_workflow(WorkflowSpec(kind=kind, order=["a"], params={"x": 1}))
    assert caught.value.pointer == "/workflow/params"


def test_spec_when_no_parameters_are_given_then_is_written_as_before() -> None:
    assert "params" not in AlgorithmSpec().model_dump(mode="json")
    assert set(WorkflowSpec(order=["a"]).model_dump()) == {"kind", "order", "max_turns"}
    assert set(RewardSpec().model_dump()) == {"alpha", "weights"}
