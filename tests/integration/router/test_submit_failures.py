"""A submission that fails midway: the next request with its Idempotency-Key makes the job."""

import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisAwayError
from rest_world import RestWorld, rest_world, spec_document

KEY = {"Idempotency-Key": "k"}


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(redis, tmp_path) as found:
        yield found


def folders(world: RestWorld) -> list[str]:
    return sorted(path.name for path in world.settings.runs_dir.iterdir())


async def jobs(world: RestWorld) -> list[str]:
    return [job["job_id"] for job in (await world.http.get("/v1/jobs")).json()["jobs"]]


@pytest.mark.parametrize(
    ("place", "job_id"), [("reserve.sync", "demo-2"), ("submit.replace_file", "demo-1")]
)
async def test_submit_when_the_disk_is_full_then_503_and_the_same_request_is_accepted_later(
    world: RestWorld, tmp_path: Path, place: str, job_id: str
) -> None:
    def full(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    spec = spec_document(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"troupe_router.jobs.{place}", full)
        refused = await world.http.post("/v1/jobs", json=spec, headers=KEY)
    assert (refused.status_code, refused.json()["reason"]) == (503, "UNAVAILABLE")
    assert "No space left" in refused.json()["detail"]
    assert await jobs(world) == []

    accepted = await world.http.post("/v1/jobs", json=spec, headers=KEY)
    assert accepted.status_code == 201, accepted.text
    assert await jobs(world) == [job_id]


async def test_submit_when_redis_goes_away_after_the_claim_then_the_same_request_makes_that_job(
    world: RestWorld, tmp_path: Path
) -> None:
    async def away(*_: Any) -> NoReturn:
        raise RedisAwayError("Connection refused")

    spec = spec_document(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.store, "create", away)
        refused = await world.http.post("/v1/jobs", json=spec, headers=KEY)
    assert refused.status_code == 503
    assert await jobs(world) == []

    accepted = await world.http.post("/v1/jobs", json=spec, headers=KEY)
    assert (accepted.status_code, accepted.json()["job_id"]) == (201, "demo-1")
    again = await world.http.post("/v1/jobs", json=spec, headers=KEY)
    assert (again.status_code, again.json()["job_id"]) == (200, "demo-1")
    assert await jobs(world) == folders(world) == ["demo-1"]


@pytest.mark.parametrize("files", [False, True])
async def test_submit_when_the_keys_job_was_deleted_then_409(
    world: RestWorld, tmp_path: Path, *, files: bool
) -> None:
    spec = spec_document(tmp_path)
    await world.http.post("/v1/jobs", json=spec, headers=KEY)
    await world.store.transition("demo-1", "launching")
    await world.store.transition("demo-1", "failed")
    deleted = await world.http.delete("/v1/jobs/demo-1", params={"files": files})
    assert deleted.status_code == 204, deleted.text
    late = await world.http.post("/v1/jobs", json=spec, headers=KEY)
    assert (late.status_code, "was deleted" in late.json()["detail"]) == (409, True)
