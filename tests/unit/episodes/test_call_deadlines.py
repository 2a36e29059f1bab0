"""Deadlines of completions follow what the fleet was seen to do."""

from typing import Any

import pytest

from troupe.episodes.call_deadlines import SLACK, SLOWEST, CallDeadlines
from troupe.spec import parse_spec


def deadlines(**limits: float) -> CallDeadlines:
    document: dict[str, Any] = {
        "name": "patient",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "nobody/knows"}},
        "limits": limits,
    }
    return CallDeadlines(parse_spec(document))


def test_deadlines_when_nothing_was_seen_then_is_that_of_the_models_size() -> None:
    assert deadlines().generation_s("p", 1000) == 120 + 1000 / 50


def test_deadlines_when_the_fleet_is_slower_then_grows_with_what_was_seen() -> None:
    slow, before = deadlines(), deadlines().episode_s()
    slow.note("p", 500, 500 / 20)  # too little to go by
    assert slow.generation_s("p", 1000) == 140
    slow.note("p", 1500, 1500 / 20)
    assert slow.generation_s("p", 1000) == pytest.approx(120 + SLACK * 1000 / 20)
    assert slow.episode_s() > before


def test_deadlines_when_the_fleet_is_faster_then_is_never_shorter() -> None:
    fast = deadlines()
    fast.note("p", 100_000, 100_000 / 5000)
    assert fast.generation_s("p", 1000) == 140


def test_deadlines_when_calls_were_given_up_then_grows_up_to_a_bound() -> None:
    hung, given = deadlines(), [140.0]
    for _ in range(20):
        hung.note("p", 1000, given[-1])
        given.append(hung.generation_s("p", 1000))
    assert given == sorted(given)
    assert given[-1] == 120 + SLOWEST * 1000 / 50


def test_deadlines_when_a_burst_is_long_past_then_is_forgotten() -> None:
    once = deadlines()
    once.note("p", 900_000, 900_000 / 10)
    slow = once.generation_s("p", 1000)
    for _ in range(200):
        once.note("p", 100_000, 100_000 / 5000)
    assert slow > once.generation_s("p", 1000) == 140


def test_deadlines_when_limits_are_set_then_they_bind() -> None:
    bound = deadlines(generate_timeout_s=3, episode_timeout_s=5)
    bound.note("p", 100_000, 1e6)
    assert (bound.generation_s("p", 8192), bound.episode_s()) == (3, 5)
