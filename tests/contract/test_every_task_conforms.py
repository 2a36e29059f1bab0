"""Every registered task family keeps the promises of the task contract; none is left out.

A family whose module cannot be imported is skipped with the reason; all others are checked, those
that run programs with the installed sandbox. `troupe check NAME` tries much harder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from troupe import plugins
from troupe.conformance import CheckLimits, Reference, check_family
from troupe.conformance.audit import AuditLimits, audit_family
from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import TaskFamily, needs_sandbox, runs_programs
from troupe.tasks.registry import load_family

QUICK = CheckLimits(
    num_tasks=2,
    seconds=0.3,
    huge_chars=200_000,
    split_sample=20,
    num_draws=6,
    num_processes=1,
    check_seconds=2.0,
    step_limit_s=60.0,
)

COSTLY = replace(QUICK, num_tasks=1, max_steps=3, check_seconds=1.0, huge_chars=50_000)
"""For families whose steps run several programs each."""

PARAMS: Mapping[str, Mapping[str, Any]] = {
    "gymnasium": {
        "env": "FrozenLake-v1",
        "env_kwargs": {"is_slippery": False},
        "actions": ["left", "down", "right", "up"],
        "return_bound": 1.0,
    },
    "pettingzoo": {
        "env": "classic/tictactoe-v3",
        "return_bound": 0.0,
        "max_steps": 12,
    },
}
"""Parameters of families that have no default instance: adapters need to be told what to wrap."""

ELSEWHERE = {"openenv", "program", "textarena"}
"""What needs a server, a package or a program; tests/integration/adapters and tests/integration/
programs run the kit on them."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox | None]:
    """The installed sandbox, started once, or None where there is none."""
    if not plugins.registered(plugins.SANDBOXES):
        yield None
        return
    try:
        started = plugins.load(plugins.SANDBOXES, "local")()
    except InvalidArgumentError:
        yield None
        return
    yield started
    started.close()


def reference_to(case: str) -> Reference:
    """The family and the parameters of a case: a family's name, or that of a drawn one."""
    if case in DRAWN:
        return Reference(DRAWN[case], {"observe": "image", "style": "verbose"})
    if case in COMPACT:
        return Reference(COMPACT[case], {"style": "compact"})
    return Reference(case, PARAMS.get(case, {}))


def loaded(case: str, sandbox: Sandbox | None) -> TaskFamily:
    """The family of ``case``; a skip where what it needs is not installed."""
    name, params = reference_to(case).name, reference_to(case).params
    if name == "verilog" and find_spec("pyosys") is None:
        pytest.skip("verilog needs yosys: pip install 'troupe[verilog]'")
    try:
        family = load_family(name, params)
    except InvalidArgumentError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        pytest.skip(error.message)
    if needs_sandbox(family) and sandbox is None:
        pytest.skip(f"{name} runs programs and no sandbox is installed")
    return family


SIMULATED = {"carry"}
"""Families whose steps take milliseconds; `troupe audit` plays them longer."""

NAMES = sorted({*plugins.registered(plugins.TASKS)} - ELSEWHERE)

DRAWN_FAMILIES = (
    "blocksworld",
    "carry",
    "eight_queens",
    "guided_walk",
    "plan_path",
    "shapes",
    "sokoban",
    "sudoku",
)
DRAWN = {f"{name} as image": name for name in DRAWN_FAMILIES}
"""Families whose board can be an image; what they pay is the same either way."""

COMPACT = {f"{name} compact": name for name in ("search", "sql", "tools")}
"""Families with another language of answers for tiny models."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*NAMES, *DRAWN, *COMPACT])
def test_family_when_the_kit_tries_to_break_it_then_holds(
    name: str, sandbox: Sandbox | None
) -> None:
    family = loaded(name, sandbox)
    report = check_family(
        family,
        reference=reference_to(name),
        sandbox=sandbox if needs_sandbox(family) else None,
        limits=COSTLY if runs_programs(family) else QUICK,
    )
    assert report.is_ok, f"{name}: {', '.join(report.failed)}\n{report.text()}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*NAMES, *COMPACT])
def test_reward_when_it_is_attacked_then_pays_nobody_for_nothing(
    name: str, sandbox: Sandbox | None
) -> None:
    family = loaded(name, sandbox)
    limits = AuditLimits(num_tasks=8, budget=240)
    if runs_programs(family):
        limits = AuditLimits(num_tasks=2, budget=0)
    if name in SIMULATED:
        limits = AuditLimits(num_tasks=1, budget=8)
    report = audit_family(family, sandbox=sandbox, limits=limits)
    assert report.is_ok, report.text()


def test_no_family_when_it_is_registered_then_is_forgotten() -> None:
    assert set(plugins.registered(plugins.TASKS)) >= ELSEWHERE | PARAMS.keys() | {"plan_path"}
