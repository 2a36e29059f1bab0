"""What runs out or never answers: sandbox workers, poisoned tasks. Run by `make chaos`."""

import json
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import SANDBOX, Case
from chaos_world import ChaosWorld
from platform_world import Platform

from troupe.clients.rest import JobDocument

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


def of_family(spec: dict[str, Any], name: str, **limits: float) -> dict[str, Any]:
    task = {**spec["task"], "name": f"program_task:{name}"}
    return {**spec, "name": name.lower(), "task": task, "limits": limits}


@pytest.fixture(scope="module")
def programs_spec(chaos_spec: dict[str, Any]) -> dict[str, Any]:
    """The same job, whose judge runs a program in the sandbox for each action."""
    return of_family(chaos_spec, "Programs")


@pytest.fixture(scope="module")
def undisturbed_programs(world: ChaosWorld, programs_spec: dict[str, Any]) -> Path:
    return world.run_alone(programs_spec)


@pytest.mark.parametrize("case", SANDBOX, ids=lambda case: case.id)
def test_job_when_a_sandbox_worker_is_hit_then_ends_as_if_nothing_happened(
    world: ChaosWorld, programs_spec: dict[str, Any], undisturbed_programs: Path, case: Case
):
    assert world.run(case, programs_spec, undisturbed_programs).faults == []


def end_of(platform: Platform, spec: dict[str, Any]) -> JobDocument:
    with platform.client() as client:
        job_id = client.submit(spec).job_id
        for _ in client.events(job_id):
            pass
        return client.job(job_id)


def test_job_when_half_of_its_tasks_always_raise_then_fails_with_the_reason(
    platform: Platform, chaos_spec: dict[str, Any]
):
    ended = end_of(platform, of_family(chaos_spec, "Poisoned"))
    assert ended.state == "failed"
    assert "limits.max_dropped_fraction = 0.1" in ended.reason
    assert "is poison" in ended.reason


def test_job_when_dropped_tasks_are_within_the_budget_then_succeeds_and_counts_them(
    platform: Platform, chaos_spec: dict[str, Any]
):
    ended = end_of(platform, of_family(chaos_spec, "Poisoned", max_dropped_fraction=1.0))
    assert ended.state == "succeeded", ended.reason
    lines = (platform.run_dir(ended.job_id) / "episodes.jsonl").read_text().splitlines()
    train = [x for x in map(json.loads, lines) if x["kind"] == "train"]
    dropped = [x for x in train if x.get("dropped_reason")]
    assert len(train) == 3 * 6
    assert 0 < len(dropped) < len(train)
    assert all("is poison" in x["dropped_reason"] for x in dropped)
