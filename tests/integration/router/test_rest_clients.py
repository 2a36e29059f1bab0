"""Both clients against the real application: every call, and that none lacks a documented path."""

import asyncio
import contextlib
import inspect
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, episode_line, rest_world, spec_document, write_lines

from troupe.bundles import bundle_of
from troupe.clients.rest import AsyncRestClient
from troupe.clients.rest.errors import TooManyError
from troupe.errors import ConflictError, NotFoundError
from troupe.runtime.streams.events import EventLog
from troupe.spec.issues import SpecInvalidError


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(redis, tmp_path) as found:
        yield found


@pytest.fixture
async def client(world: RestWorld) -> AsyncIterator[AsyncRestClient]:
    transport = httpx.ASGITransport(app=world.app)
    async with AsyncRestClient("http://router", transport=transport) as found:
        yield found


async def test_async_client_lives_a_job_from_submit_to_delete(
    world: RestWorld, client: AsyncRestClient, tmp_path: Path, redis: Redis
) -> None:
    spec = spec_document(tmp_path)
    assert (await client.dry_run(spec))["estimate"]["env_steps_at_most"] > 0
    with pytest.raises(SpecInvalidError) as caught:
        await client.submit({**spec, "stepz": 1})
    assert "/stepz" in [issue.pointer for issue in caught.value.issues]
    job = await client.submit(spec, idempotency_key="k", priority=3)
    assert (job.state, job.priority, job.queue_position) == ("queued", 3, 1)
    assert (await client.set_priority(job.job_id, -1)).priority == -1
    assert (await client.pause(job.job_id)).state == "paused"
    assert (await client.resume(job.job_id)).state == "queued"
    assert [j.job_id for j in await client.jobs(states=["queued"])] == ["demo-1"]
    assert (await client.quota()).queued[0].waits_for == ""
    assert (await client.progress(job.job_id)).waiting.phase == "queue"
    assert (await client.session()).authentication == "off"
    assert {t.name for t in await client.tasks()} >= {"plan_path", "code"}
    assert await client.replicas() == []
    assert (await client.policies(job.job_id))[0].agents == ["tool", "planner"]
    assert (await client.cancel(job.job_id)).state == "cancelling"
    with pytest.raises(ConflictError, match="cancel it"):
        await client.delete(job.job_id)
    await world.store.transition(job.job_id, "cancelled")
    await EventLog(redis, job.job_id, source="t").emit("job.state", {"state": "cancelled"})
    async with asyncio.timeout(20):
        states = [e.data["state"] async for e in client.events(job.job_id)]
    assert states == ["queued", "paused", "queued", "cancelling", "cancelled"]
    await client.delete(job.job_id)
    with pytest.raises(NotFoundError):
        await client.job(job.job_id)


async def test_async_client_reads_a_run(
    world: RestWorld, client: AsyncRestClient, tmp_path: Path
) -> None:
    job = await client.submit(spec_document(tmp_path))
    run_dir = world.settings.runs_dir / job.job_id
    write_lines(run_dir / "metrics.jsonl", [{"kind": "train", "step": 0, "wall_s": 1.5}])
    write_lines(
        run_dir / "episodes.jsonl", [episode_line("demo-1", "train-00000", 0, rewards=(1.0, 0.0))]
    )
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "env-0.log").write_text("hello\n")
    assert (await client.metrics(job.job_id)).train.series["wall_s"] == [1.5]
    assert (await client.step(job.job_id, 0)).episodes.num == 1
    page = await client.episodes(job.job_id, agent="tool", order="reward_desc")
    episode = await client.episode(job.job_id, page.episodes[0].id)
    assert episode.turns[0].groups[0].candidates[0].is_chosen
    assert await client.checkpoints(job.job_id) == []
    assert [f.component for f in await client.logs(job.job_id)] == ["env-0"]
    assert (await client.log(job.job_id, "env-0", tail=5)).lines == ["hello"]


async def test_jobs_when_some_began_in_one_instant_then_each_is_on_one_page(
    world: RestWorld, client: AsyncRestClient, tmp_path: Path
) -> None:
    record = await world.store.get((await client.submit(spec_document(tmp_path))).job_id)
    for number in range(2, 6):
        await world.store.restore(replace(record, job_id=f"demo-{number}"), {})
    found, cursor = list[str](), None
    while cursor or not found:
        page = await client.jobs_page(limit=2, cursor=cursor)
        found += [job.job_id for job in page.jobs]
        cursor = page.next_cursor
    assert found == [f"demo-{number}" for number in (5, 4, 3, 2, 1)]


async def test_client_that_asks_too_often_waits_as_it_is_told_while_it_may(
    redis: Redis, tmp_path: Path
) -> None:
    async with rest_world(redis, tmp_path, rate_per_s=2.0, rate_burst=1) as world:
        transport = httpx.ASGITransport(app=world.app)
        began = time.monotonic()
        async with AsyncRestClient("http://router", transport=transport, retry_for_s=30) as patient:
            for _ in range(3):
                assert await patient.jobs() == []
        assert time.monotonic() - began >= 1.0
        async with AsyncRestClient("http://router", transport=transport, retry_for_s=0.5) as hasty:
            with pytest.raises(TooManyError, match="requests a second") as caught:
                for _ in range(9):
                    await hasty.jobs()
        assert caught.value.retry_after_s == 1.0


def test_blocking_client_is_what_the_async_one_makes_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    script, made = root / "scripts/gen_sync_client.py", tmp_path / "client.py"
    subprocess.run([sys.executable, str(script), str(made)], check=True)
    assert made.read_text() == (root / "troupe/clients/rest/client.py").read_text()


GIVEN: dict[str, dict[str, Any]] = {
    "submit": {"spec": {}, "priority": 1},
    "dry_run": {"spec": {}},
    "jobs": {"states": ["running"]},
    "jobs_page": {"states": ["running"], "cursor": "c"},
    "play_dry_run": {"spec": {}, "num_tasks": 1},
    "upload_bundle": {"bundle": bundle_of({"a.py": b""})},
    "set_priority": {"priority": 1},
    "delete": {"files": True},
    "events_page": {"wait_s": 1.0},
    "metrics": {"names": ["a"], "from_step": 1, "max_points": 2},
    "steps": {"cursor": "1"},
    "step": {"number": 1},
    "episodes": {"step": 1, "agent": "a", "failure": "any", "order": "oldest"},
    "episode": {"episode_id": "e"},
    "episode_image": {"digest": "0" * 64},
    "log": {"component": "c", "tail": 1, "after": 2, "wait_s": 1.0},
    "download": {"checkpoint": "c", "policy": "p", "target": Path("x")},
}


async def test_every_call_is_a_documented_path_with_documented_parameters(
    world: RestWorld,
) -> None:
    document = (await world.http.get("/openapi.json")).json()
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(404, json={"reason": "NOT_FOUND", "detail": "nothing"})

    transport = httpx.MockTransport(handler)
    async with AsyncRestClient("http://router", transport=transport) as client:
        members = inspect.getmembers(AsyncRestClient, inspect.isfunction)
        names = {name for name, _ in members if not name.startswith("_")} - {"close"}
        for name in sorted(names):
            call = getattr(client, name)
            of_job = {"job_id": "j"} if "job_id" in inspect.signature(call).parameters else {}
            with contextlib.suppress(NotFoundError):
                answer = call(**of_job, **GIVEN.get(name, {}))
                if inspect.isasyncgen(answer):
                    await anext(answer)
                else:
                    await answer
    assert len(asked) == len(names) > 25
    covered: set[str] = set()
    for request in asked:
        template = _template(document, request.method, request.url.path)
        covered.add(f"{request.method} {template}")
        operation = document["paths"][template][request.method.lower()]
        named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
        assert request.url.params.keys() <= named, request.url
    all_of_them = {
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item
    }
    page = (Path(__file__).parents[3] / "docs/rest.md").read_text("utf-8")
    told = page.partition("The clients have no method for ")[2].partition("\n\n")[0]
    assert all_of_them - covered == set(re.findall(r"`([A-Z]+ /[^`]*)`", told))


def _template(document: dict[str, Any], method: str, path: str) -> str:
    parts = path.split("/")
    for template, item in document["paths"].items():
        names = template.split("/")
        if (
            len(names) == len(parts)
            and all(a == b or a.startswith("{") for a, b in zip(names, parts, strict=True))
            and method.lower() in item
        ):
            return template
    raise AssertionError(f"{method} {path} is not documented")
