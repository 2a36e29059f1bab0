"""The ledger and the publish protocol in every order; and that each guard is needed."""

from typing import Any

import ledger_model
import publish_model
import pytest
from ledger_model import ledger_model as ledger
from protocol_search import search
from protocol_settings import ProtocolSettings
from publish_model import publish_model as publish

ONE = {"conductors": 1, "trainers": 1, "steps": 1, "ghosts": 0, "doubles": 0}

LEDGERS: dict[str, dict[str, Any]] = {
    "a conductor sleeps": {**ONE, "conductors": 2, "tickets": 2},
    "a trainer sleeps": {**ONE, "trainers": 2, "tickets": 2},
    "a command comes twice": {**ONE, "ghosts": 1, "doubles": 1},
    "two tickets and a doubled entry": {**ONE, "tickets": 2, "doubles": 1},
}
"""Small worlds, each with one kind of trouble."""

LEDGERS_IN_FULL: dict[str, dict[str, Any]] = {
    "both sleep": {"steps": 1, "ghosts": 0, "doubles": 0},
    "a command comes twice in two steps": {**ONE, "steps": 2, "ghosts": 1},
    "a trainer sleeps for two steps": {**ONE, "trainers": 2, "steps": 2},
    "a trainer sleeps and a command comes twice": {**ONE, "trainers": 2, "ghosts": 1},
}

PUBLISHES: dict[str, dict[str, Any]] = {
    "a trainer sleeps": {"versions": 2, "restarts": 0},
    "a replica restarts": {"restarts": 1},
    "a lease ends": {"restarts": 0, "expiries": 1},
    "calls come twice": {"versions": 2, "trainers": 1, "restarts": 0, "ghosts": 2},
}

PUBLISHES_IN_FULL: dict[str, dict[str, Any]] = {
    "a replica restarts, two versions": {"versions": 2},
    "a trainer sleeps and a call comes twice": {"restarts": 0, "ghosts": 1},
    "all but a sleeper": {"trainers": 1, "versions": 2, "ghosts": 1, "expiries": 1},
}


def _worlds(quick: dict[str, Any], full: dict[str, Any]) -> list[Any]:
    worlds = {**quick, **full} if ProtocolSettings().full else quick
    return [pytest.param(world, id=name) for name, world in worlds.items()]


@pytest.mark.parametrize("world", _worlds(LEDGERS, LEDGERS_IN_FULL))
def test_ledger_when_anything_happens_in_any_order_then_every_invariant_holds(
    world: dict[str, Any],
) -> None:
    found = search(ledger(**world))
    assert not found.problem, found
    assert found.num_states > 200


@pytest.mark.parametrize("world", _worlds(PUBLISHES, PUBLISHES_IN_FULL))
def test_publish_when_anything_happens_in_any_order_then_every_invariant_holds(
    world: dict[str, Any],
) -> None:
    found = search(publish(**world))
    assert not found.problem, found
    assert found.num_states > 200


LEDGER_NEEDS = {
    "open once": ("a command comes twice", "episodes"),
    "first": ("a trainer sleeps", "counts"),
    "commit forward": ("a command comes twice", "went back"),
    "ack covered": ("a trainer sleeps", "lost"),
    "dedupe": ("two tickets and a doubled entry", "trained with"),
    "keep unreadable": ("a trainer sleeps", "lost"),
    "conductor epoch": ("a conductor sleeps", "is recorded with 0 episodes"),
    "ack epoch": ("a trainer sleeps", "lost"),
}
"""Of each guard: the world that breaks without it, and how."""

PUBLISH_NEEDS = {
    "stage on all": ("a trainer sleeps", "before every replica has it"),
    "check forward": ("calls come twice", "went back"),
    "catch up": ("a trainer sleeps", "it can never end"),
    "commit epoch": ("a trainer sleeps", "samples from"),
    "replica epoch": ("a trainer sleeps", "before every replica has it"),
    "epoch at join": ("a replica restarts", "before every replica has it"),
    "tell all": ("a trainer sleeps", "before every replica has it"),
    "keep committed": ("a trainer sleeps", "samples from"),
    "evict lowest": ("calls come twice", "does not have it"),
    "meant digest": ("a lease ends", "before every replica has it"),
}


def test_guards_when_listed_then_each_has_a_world_that_needs_it() -> None:
    assert LEDGER_NEEDS.keys() == ledger_model.GUARDS
    assert PUBLISH_NEEDS.keys() | {"one digest"} == publish_model.GUARDS


@pytest.mark.parametrize("guard", sorted(LEDGER_NEEDS))
def test_ledger_when_one_guard_is_gone_then_the_search_finds_what_breaks(guard: str) -> None:
    name, problem = LEDGER_NEEDS[guard]
    found = search(ledger(ledger_model.GUARDS - {guard}, **LEDGERS[name]))
    assert problem in found.problem, found


@pytest.mark.parametrize("guard", sorted(PUBLISH_NEEDS))
def test_publish_when_one_guard_is_gone_then_the_search_finds_what_breaks(guard: str) -> None:
    name, problem = PUBLISH_NEEDS[guard]
    found = search(publish(publish_model.GUARDS - {guard}, **PUBLISHES[name]))
    assert problem in found.problem, found


@pytest.mark.parametrize("is_there", [True, False])
def test_commit_when_a_trainer_does_not_keep_the_committed_file_then_the_ledger_still_refuses(
    is_there: bool,
) -> None:
    """The second line: of the ledger alone, when the first one, in the trainer, is gone."""
    guards = publish_model.GUARDS - {"keep committed"}
    guards -= set() if is_there else {"one digest"}
    found = search(publish(guards, **PUBLISHES["a trainer sleeps"], only_ledger=True))
    assert ("was committed as" in found.problem) == (not is_there), found
