"""A job that is resumed: its exported weights, its step, and what is refused."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.durable import replace_file
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger
from troupe_router.jobs.state import JobState

STEPS = 4


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(redis, tmp_path) as found:
        yield found


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    return spec_document(tmp_path, steps=STEPS)


async def left(world: RestWorld, spec: dict[str, Any], *states: JobState) -> tuple[str, Path]:
    """The path of a job that learnt and exported all its steps, then came into ``states``."""
    made = (await world.http.post("/v1/jobs", json=spec)).json()
    job, run_dir = made["job_id"], Path(made["run_dir"])
    (run_dir / "checkpoints" / f"step-{STEPS:05d}").mkdir(parents=True)
    replace_file(run_dir / "policies" / "p" / "merged" / "config.json", "{}")
    ledger = StepLedger(world.redis, job)
    await ledger.commit_version("p", STEPS, "digest")
    await ledger.set_result({"step": STEPS, "policies": {}})
    await world.store.transition(job, "launching")
    await world.store.transition(job, "running")
    await world.store.set_step(job, STEPS)
    for state in states:
        await world.store.transition(job, state)
    return f"/v1/jobs/{job}", run_dir


async def final_steps(world: RestWorld, job: str) -> list[int]:
    listed = (await world.http.get(f"{job}/checkpoints")).json()["checkpoints"]
    return [checkpoint["step"] for checkpoint in listed if checkpoint["id"] == "final"]


@pytest.mark.parametrize(
    "states", [("cancelling", "cancelled"), ("failed",), ("pausing", "paused"), ("succeeded",)]
)
async def test_exported_weights_when_the_job_is_resumed_with_more_steps_then_are_not_its_end(
    world: RestWorld, spec: dict[str, Any], states: tuple[JobState, ...]
) -> None:
    job, run_dir = await left(world, spec, *states)
    assert await final_steps(world, job) == [STEPS]
    longer = await world.http.post(f"{job}/resume", json={**spec, "steps": STEPS + 2})
    assert (longer.status_code, longer.json()["steps"]) == (200, STEPS + 2)
    await world.store.set_step(run_dir.name, STEPS + 1)
    assert await final_steps(world, job) == []
    assert (run_dir / "exports" / str(STEPS) / "p" / "merged" / "config.json").is_file()
    assert await StepLedger(world.redis, run_dir.name).result() is None


async def test_exported_weights_when_the_job_is_resumed_with_its_steps_then_stay_of_their_step(
    world: RestWorld, spec: dict[str, Any]
) -> None:
    job, run_dir = await left(world, spec, "pausing", "paused")
    assert (await world.http.post(f"{job}/resume")).json()["state"] == "queued"
    await world.store.set_step(run_dir.name, 1)
    assert await final_steps(world, job) == [STEPS]
    assert await StepLedger(world.redis, run_dir.name).result() is not None


async def test_job_when_a_failed_one_is_resumed_then_it_is_at_the_step_of_its_last_checkpoint(
    world: RestWorld, spec: dict[str, Any]
) -> None:
    job, _ = await left(world, spec, "failed")
    assert (await world.http.post(f"{job}/resume")).json()["step"] == STEPS
    await world.http.post(f"{job}/cancel")
    assert (await world.http.get(job)).json()["step"] == STEPS


async def test_resume_when_the_job_waits_or_runs_then_another_spec_is_refused(
    world: RestWorld, spec: dict[str, Any]
) -> None:
    made = (await world.http.post("/v1/jobs", json=spec)).json()
    for state in ("queued", "launching", "running"):
        if state != "queued":
            await world.store.transition(made["job_id"], state)
        path = f"/v1/jobs/{made['job_id']}/resume"
        for same in (spec, made["spec"], None):
            answer = await world.http.post(path, json=same)
            assert (answer.status_code, answer.json()["state"]) == (200, state)
        for change, pointer in (({"steps": 9}, "/steps"), ({"seed": 9}, "/seed")):
            answer = await world.http.post(path, json={**spec, **change})
            assert (answer.status_code, pointer in answer.json()["detail"]) == (409, True)


@pytest.mark.parametrize(("name", "value"), [("dry_run", "true"), ("priority", "0")])
async def test_submission_when_it_resumes_a_job_then_parameters_of_a_new_one_are_refused(
    world: RestWorld, spec: dict[str, Any], name: str, value: str
) -> None:
    job, run_dir = await left(world, spec, "failed")
    params = {"resume": run_dir.name, name: value}
    refused = await world.http.post("/v1/jobs", params=params, json=spec)
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [f"/query/{name}"]
    assert (await world.http.get(job)).json()["state"] == "failed"


async def test_job_when_resumed_then_it_waits_for_its_turn_since_then(
    world: RestWorld, spec: dict[str, Any]
) -> None:
    job, run_dir = await left(world, spec, "failed")
    await world.redis.hset(keys.job(run_dir.name), "created_at", str(time.time() - 1000))
    assert (await world.http.post(f"{job}/resume")).json()["state"] == "queued"
    waiting = (await world.http.get(f"{job}/progress")).json()["waiting"]
    assert waiting["phase"] == "queue"
    assert waiting["for_s"] < 500
