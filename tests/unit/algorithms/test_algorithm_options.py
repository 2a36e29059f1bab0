"""A part of the spec that nothing reads is an error, and so is one that is missing."""

import inspect
from typing import Any

import pytest

from troupe import plugins
from troupe.algorithms.base import GroupRelative
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError

PARAMS: dict[str, dict[str, Any]] = {"matpo": {"lead": "planner"}}
"""Of algorithms that can't do without."""
PARTS: dict[str, Any] = {"joint": {}, "critic": {}, "preference": {}}
KINDS = plugins.registered(plugins.ALGORITHMS)


def make(kind: str, **parts: Any) -> GroupRelative:
    cls = plugins.load(plugins.ALGORITHMS, kind)
    params = [cls.Params(**PARAMS[kind])] if kind in PARAMS else []
    return cls(AlgorithmSpec.model_validate({"kind": kind, **parts}), *params)


def least(kind: str) -> dict[str, Any]:
    """The parts that ``kind`` can't do without."""
    return {name: PARTS[name] for name in plugins.load(plugins.ALGORITHMS, kind).required}


@pytest.mark.parametrize("kind", KINDS)
def test_algorithm_when_given_what_it_needs_then_is_made(kind: str) -> None:
    assert make(kind, **least(kind)).sampler().num_candidates >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_algorithm_when_given_a_part_that_it_ignores_then_refuses_it_by_name(kind: str) -> None:
    ignored = set(PARTS) - plugins.load(plugins.ALGORITHMS, kind).options
    for name in ignored:
        with pytest.raises(SpecInvalidError, match=f"/algorithm/{name}: '{kind}' does not read"):
            make(kind, **least(kind) | {name: PARTS[name]})


@pytest.mark.parametrize("kind", ["mareinforce", "reinforce_pp", "role_conditioned", "ippo"])
def test_redraws_when_flat_groups_teach_as_well_then_are_refused(kind: str) -> None:
    with pytest.raises(SpecInvalidError, match="/algorithm/redraws"):
        make(kind, redraws=2, **least(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_algorithm_when_measured_then_is_a_small_module_that_cites_its_paper(kind: str) -> None:
    module = inspect.getmodule(plugins.load(plugins.ALGORITHMS, kind))
    assert module is not None
    assert module.__doc__ is not None
    assert "Source:" in module.__doc__
    assert "arXiv" in module.__doc__
    assert len(inspect.getsource(module).splitlines()) < 100
