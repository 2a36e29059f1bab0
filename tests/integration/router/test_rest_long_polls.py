"""Requests that wait: they hold no connection of Redis each, and are bounded like streams."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fleet_world import until
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.aio import cancel_all
from troupe.errors import OverloadedError
from troupe.runtime.streams.redis import connect

EVENTS, LOG = "/v1/jobs/demo-1/events", "/v1/jobs/demo-1/logs/trainer-0"


@asynccontextmanager
async def world_of(redis: Redis, tmp_path: Path, **settings: Any) -> AsyncIterator[RestWorld]:
    """A router with a job that has one event and an empty log."""
    async with rest_world(redis, tmp_path, **settings) as world:
        await world.http.post("/v1/jobs", json=spec_document(tmp_path))
        logs = world.settings.runs_dir / "demo-1" / "logs"
        logs.mkdir()
        (logs / "trainer-0.log").touch()
        yield world


async def polls(
    world: RestWorld, number: int, path: str, **params: Any
) -> list[asyncio.Task[httpx.Response]]:
    """So many polls, which wait by now."""
    wanted = world.fanout.num_followers + number
    params = {"wait_s": 30, **params}
    begun = [asyncio.create_task(world.http.get(path, params=params)) for _ in range(number)]
    await until(lambda: world.fanout.num_followers == wanted)
    return begun


async def last_event(world: RestWorld) -> str:
    return (await world.http.get(EVENTS)).json()["next"]


async def test_polls_when_many_wait_for_an_event_then_others_have_connections_and_all_get_it(
    redis_url: str, redis: Redis, tmp_path: Path
) -> None:
    small = await connect(redis_url, max_connections=4)
    async with world_of(small, tmp_path) as world:
        waiting = await polls(world, 12, EVENTS, after=await last_event(world))
        async with asyncio.timeout(5):
            answer = await world.http.post("/v1/jobs/demo-1/cancel")
            assert answer.status_code == 200
            pages = [(await poll).json() for poll in waiting]
    assert {page["events"][0]["data"]["state"] for page in pages} == {"cancelling"}
    await small.aclose()


async def test_poll_when_nothing_happens_then_is_an_empty_page_after_its_time(
    redis: Redis, tmp_path: Path
) -> None:
    async with world_of(redis, tmp_path) as world:
        after, began = await last_event(world), time.monotonic()
        page = (await world.http.get(EVENTS, params={"after": after, "wait_s": 0.3})).json()
        assert time.monotonic() - began >= 0.3
        assert page == {"events": [], "next": after}
        assert world.fanout.num_followers == 0


async def test_polls_when_a_caller_has_as_many_as_it_may_then_one_more_is_429_with_retry_after(
    redis: Redis, tmp_path: Path
) -> None:
    async with world_of(redis, tmp_path, max_streams_per_caller=2) as world:
        after = await last_event(world)
        waiting = [
            *await polls(world, 1, EVENTS, after=after),
            *await polls(world, 1, LOG, after=0),
        ]
        for path, place in ((EVENTS, after), (LOG, 0)):
            params = {"after": place, "wait_s": 30}
            answer = await world.http.get(path, params=params)
            assert (answer.status_code, "of this caller" in answer.text) == (429, True)
            assert int(answer.headers["retry-after"]) >= 1
            assert (await world.http.get(path, params={"after": place})).status_code == 200
        await cancel_all(*waiting)
        assert world.fanout.num_followers == 0


async def test_polls_when_their_job_is_over_then_are_counted_all_the_while_and_end_with_the_router(
    redis: Redis, tmp_path: Path
) -> None:
    async with world_of(redis, tmp_path, max_streams_per_caller=2) as world:
        for state in ("cancelling", "cancelled"):
            await world.store.transition("demo-1", state)
        waiting = await polls(world, 2, EVENTS, after=await last_event(world))
        async for _ in world.fanout.follow("demo-1", "0"):
            pass  # it ends with the feed that the polls follow too
        assert world.fanout.num_followers == 2
        with pytest.raises(OverloadedError, match="of this caller"):
            await world.fanout.wait("demo-1", "0", "127.0.0.1", 1.0)
        await world.fanout.close()
        async with asyncio.timeout(5):
            assert [(await poll).json()["events"] for poll in waiting] == [[], []]
        assert world.fanout.num_followers == 0


async def test_polls_when_they_come_at_once_then_no_more_begin_than_may(
    redis: Redis, tmp_path: Path
) -> None:
    async with world_of(redis, tmp_path, max_streams_per_caller=2) as world:
        after = await last_event(world)
        waits = [world.fanout.wait("demo-1", after, "ci", 0.3) for _ in range(8)]
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [end is None for end in ends] == [True] * 2 + [False] * 6
