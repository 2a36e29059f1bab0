"""Job records of another version: an older one's fields are kept, a newer one's are refused."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from troupe.runtime.streams import keys
from troupe.runtime.streams.versions import RECORD_VERSION, VERSION_FIELD, NewerRecordError
from troupe.spec import JobSpec, parse_spec
from troupe_router.cluster.garbage_collector import GarbageCollector
from troupe_router.cluster.launcher import KubernetesLauncher
from troupe_router.cluster.leader import Leader
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore


def spec() -> JobSpec:
    document: dict[str, Any] = {
        "name": "demo",
        "steps": 2,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["a"]},
        "agents": {"a": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
    }
    return parse_spec(document)


@dataclass
class _Cluster:
    """The objects that a sweeper finds, by owner."""

    objects: set[str]

    async def owners(self) -> list[str]:
        return sorted(self.objects)

    async def stop(self, owner: str, *, grace_s: float) -> None:
        self.objects.discard(owner)


def record(job_id: str) -> JobRecord:
    return JobRecord(job_id, spec(), Path("runs") / job_id, "queued", created_at=time.time())


async def test_spec_when_an_older_version_began_the_job_then_workers_get_no_new_field(
    redis: Redis,
) -> None:
    store = JobStore(redis)
    await store.create(record("old-1"))
    stored = json.loads(await redis.hget(keys.job("old-1"), "spec") or b"{}")
    # The version before knew neither of these fields, and refuses a spec that has them.
    del stored["max_staleness"]
    del stored["policies"]["p"]["replicas"]
    await redis.hset(keys.job("old-1"), "spec", json.dumps(stored))
    job = await store.get("old-1")
    assert json.loads(job.spec_as_begun) == stored
    assert (job.spec.max_staleness, job.spec.policies["p"].replicas) == (0, 1)


async def test_spec_when_this_version_began_the_job_then_workers_get_every_field(
    redis: Redis,
) -> None:
    store = JobStore(redis)
    await store.create(record("now-1"))
    job = await store.get("now-1")
    assert json.loads(job.spec_as_begun) == json.loads(job.spec.model_dump_json())


async def test_records_when_one_is_newer_then_it_alone_is_refused(redis: Redis) -> None:
    store = JobStore(redis)
    for job_id in ("mine-1", "newer-1"):
        await store.create(record(job_id))
    stored = await redis.hget(keys.job("mine-1"), VERSION_FIELD.decode())
    assert stored == str(RECORD_VERSION).encode()
    await redis.hset(keys.job("newer-1"), VERSION_FIELD.decode(), str(RECORD_VERSION + 1))
    assert [job.job_id for job in await store.unfinished()] == ["mine-1"]
    assert [job.job_id for job in await store.all()] == ["mine-1"]
    with pytest.raises(NewerRecordError, match="the record of job 'newer-1' has record version 2"):
        await store.get("newer-1")


async def test_records_when_a_spec_has_a_field_of_a_newer_version_then_it_alone_is_refused(
    redis: Redis,
) -> None:
    store = JobStore(redis)
    for job_id in ("mine-1", "newer-1"):
        await store.create(record(job_id))
    stored = json.loads(await redis.hget(keys.job("newer-1"), "spec") or b"{}")
    await redis.hset(keys.job("newer-1"), "spec", json.dumps({**stored, "of_tomorrow": {}}))
    assert [job.job_id for job in await store.unfinished()] == ["mine-1"]
    assert [job.job_id for job in await store.all()] == ["mine-1"]
    with pytest.raises(NewerRecordError, match=r"(?s)of_tomorrow.*Another version of Troupe"):
        await store.get("newer-1")


async def test_job_when_a_newer_version_runs_it_then_its_objects_in_a_cluster_are_not_swept(
    redis: Redis,
) -> None:
    store, launcher = JobStore(redis), _Cluster({"newer-1", "over-1"})
    await store.create(record("newer-1"))
    stored = json.loads(await redis.hget(keys.job("newer-1"), "spec") or b"{}")
    await redis.hset(keys.job("newer-1"), "spec", json.dumps({**stored, "of_tomorrow": {}}))
    sweeper = GarbageCollector(
        cast("KubernetesLauncher", launcher),
        cast("Leader", None),
        store.unfinished_ids,
        patience_s=lambda owner: 0.0,
    )
    assert await sweeper.sweep() == ["over-1"]
    assert launcher.objects == {"newer-1"}


async def test_record_when_it_names_no_version_then_it_is_of_the_first(redis: Redis) -> None:
    store = JobStore(redis)
    await store.create(record("old-1"))
    await redis.hdel(keys.job("old-1"), VERSION_FIELD.decode())
    assert (await store.get("old-1")).state == "queued"
