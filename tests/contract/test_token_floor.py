"""The cores of a job of 5 M tokens a second, from processor time a token."""

from typing import Any

from benchmarks.token_floor import floor, token_goals


def row(play_processes: int = 2, **us: float) -> dict[str, Any]:
    parts = {"play": 0.36, "valkey": 0.07, "collector": 0.1, "router": 0.11, "env": 0.3} | us
    return {"play_processes": play_processes, "tokens_per_s": 420_000, "us_per_token": parts}


def test_floor_when_a_job_was_played_then_names_cores_and_the_part_that_cannot_be_spread() -> None:
    found = floor(row())
    assert found["is_computed"]
    assert found["cores"]["play"] == 1.8
    assert (found["busiest_single_part"], found["its_cores"]) == ("router", 0.55)
    assert found["cores_of_all"] == 4.7


def test_goals_when_one_part_needs_a_whole_core_then_that_one_does_not_hold() -> None:
    goals = token_goals([row(1), row(collector=0.21)])
    assert all("(computed)" in each["name"] for each in goals[:-1])
    missed = [each["name"] for each in goals if not each["holds"]]
    assert missed == ["collector: cores at 5 M tokens/s, with 2 play processes (computed)"]
    assert goals[-1]["value"] == 1.0
