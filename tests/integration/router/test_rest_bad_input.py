"""Defined answers to what should not be asked: the list of bad input, one test each."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(
        redis, tmp_path, max_body_bytes=5000, max_replicas=4, max_streams=3
    ) as found:
        yield found


@pytest.fixture
async def job(world: RestWorld, tmp_path: Path) -> str:
    answer = await world.http.post("/v1/jobs", json=spec_document(tmp_path))
    return f"/v1/jobs/{answer.json()['job_id']}"


async def fail(world: RestWorld, job_id: str = "demo-1") -> None:
    await world.store.transition(job_id, "launching")
    await world.store.transition(job_id, "failed", reason="broken")


@pytest.mark.parametrize(
    ("body", "media_type", "words"),
    [
        (b"name: demo\n", "application/json", "the body is not JSON: Expecting value"),
        (b"<html>", "application/json; charset=utf-8", "the body is not JSON"),
        (b"", "application/json", "the body is not JSON"),
        (b"\xff\xfe", "application/json", "the body is not JSON"),
        (b'{"name": "demo"', "application/json", "the body is not JSON: Expecting"),
        (b"[" * 4000, "application/json", "the body is not JSON"),
        (b'"demo"', "application/json", "the body is a str, not an object"),
        (b"a: [", "application/yaml", "not valid YAML"),
    ],
)
async def test_body_that_is_no_json_gets_an_error_that_says_so(
    world: RestWorld, body: bytes, media_type: str, words: str
) -> None:
    answer = await world.http.post("/v1/jobs", content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["reason"]) == (422, "SPEC_INVALID")
    assert words in answer.json()["errors"][0]["message"]


async def test_body_of_a_kind_that_any_page_may_send_is_not_read(
    world: RestWorld, job: str, tmp_path: Path
) -> None:
    spec = json.dumps(spec_document(tmp_path))
    kinds = "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""
    paths = "/v1/jobs", "/v1/jobs?dry_run=true", f"{job}/resume", "/v1/session"
    for media_type, path in itertools.product(kinds, paths):
        headers = {"Content-Type": media_type}
        answer = await world.http.post(path, content=spec, headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (415, "MEDIA_TYPE_UNKNOWN"), path
    # Without a body there is nothing to read.
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await world.http.post(f"{job}/pause", headers=headers)).status_code == 200


@pytest.mark.parametrize("name", ["this:c", "json:JSONDecoder"])
async def test_code_that_is_no_task_gets_an_error_that_says_so(
    world: RestWorld, tmp_path: Path, name: str
) -> None:
    order = ["tool", "planner"]
    for pointer, more in {
        "/task/name": {"task": {"name": name}},
        "/workflow/kind": {"workflow": {"kind": name, "order": order}},
        "/algorithm/kind": {"algorithm": {"kind": name, "group_size": 2}},
        "/trackers/0/kind": {"trackers": [{"kind": name}]},
    }.items():
        document = spec_document(tmp_path, **more)
        answer = await world.http.post("/v1/jobs", json=document, params={"dry_run": "true"})
        assert answer.status_code == 422, answer.text
        [fault] = answer.json()["errors"]
        assert (fault["pointer"], "is no " in fault["message"]) == (pointer, True), fault


async def test_place_of_too_many_digits_gets_an_error_that_says_so(
    world: RestWorld, job: str
) -> None:
    for digits in (21, 5000):
        paged = await world.http.get(f"{job}/events?after={'9' * digits}")
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "9" * digits}
        streamed = await world.http.get(f"{job}/events", headers=headers)
        for answer in (paged, streamed):
            assert answer.status_code == 422, answer.text
            assert "is not the id of an event" in answer.json()["detail"]


async def test_model_of_a_name_that_no_file_can_have_gets_an_error_that_says_so(
    world: RestWorld, tmp_path: Path
) -> None:
    for model in (
        "a" * 4500,
        "./" + "a" * 300,
        "x/" + "\u20ac" * 100,
        "a\0b",
        "Qwen/x\n",
        "Qwen/\u00e9",
    ):
        document = spec_document(tmp_path, policies={"p": {"model": model}})
        answer = await world.http.post("/v1/jobs", json=document, params={"dry_run": "true"})
        assert answer.status_code == 422, (model, answer.text)
        [fault] = answer.json()["errors"]
        assert fault["pointer"] == "/policies/p/model"


async def test_body_in_yaml_is_taken_when_it_says_that_it_is(
    world: RestWorld, tmp_path: Path
) -> None:
    import yaml

    text = yaml.safe_dump(spec_document(tmp_path))
    headers = {"Content-Type": "application/yaml"}
    assert (await world.http.post("/v1/jobs", content=text, headers=headers)).status_code == 201


async def test_oversized_body_is_413_wherever_a_body_is_read(world: RestWorld, job: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    for method, path in (
        ("POST", "/v1/jobs"),
        ("POST", f"{job}/resume"),
        ("PATCH", job),
        ("POST", "/v1/session"),
    ):
        answer = await world.http.request(method, path, content=endless())
        assert (answer.status_code, answer.json()["reason"]) == (413, "BODY_TOO_LARGE"), path


async def test_deleted_job_is_404_everywhere_and_its_id_is_not_used_again(
    world: RestWorld, job: str, tmp_path: Path, redis: Redis
) -> None:
    refused = await world.http.delete(job)
    assert (refused.status_code, "cancel it" in refused.json()["detail"]) == (409, True)
    await fail(world)
    assert (await world.http.delete(job, params={"files": "true"})).status_code == 204
    for method, path in (
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/episodes"),
        ("GET", "/logs/trainer-0"),
        ("GET", "/checkpoints/final/p"),
        ("POST", "/cancel"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ):
        answer = await world.http.request(method, job + path)
        assert (answer.status_code, answer.json()["reason"]) == (404, "NOT_FOUND"), path
    assert [key async for key in redis.scan_iter(keys.every_key_of("demo-1"))] == []
    again = await world.http.post("/v1/jobs", json=spec_document(tmp_path))
    assert again.json()["job_id"] == "demo-2"


async def test_idempotency_key_with_another_body_or_a_deleted_job_is_409(
    world: RestWorld, tmp_path: Path
) -> None:
    spec, key = spec_document(tmp_path), {"Idempotency-Key": "k"}
    first = await world.http.post("/v1/jobs", json=spec, headers=key)
    assert first.status_code == 201
    other = await world.http.post("/v1/jobs", json={**spec, "seed": 1}, headers=key)
    assert (other.status_code, other.json()["reason"]) == (409, "CONFLICT")
    assert "Idempotency-Key 'k' was used with another body" in other.json()["detail"]
    await fail(world)
    await world.http.delete("/v1/jobs/demo-1")
    late = await world.http.post("/v1/jobs", json=spec, headers=key)
    assert (late.status_code, "was deleted" in late.json()["detail"]) == (409, True)


async def test_resume_when_the_job_was_deleted_and_its_files_are_there_then_404(
    world: RestWorld, job: str
) -> None:
    await fail(world)
    assert (await world.http.delete(job)).status_code == 204
    answer = await world.http.post(f"{job}/resume")
    assert (answer.status_code, "was deleted" in answer.json()["detail"]) == (404, True)
    assert (await world.http.get("/v1/jobs")).json()["jobs"] == []


async def test_cancel_and_pause_of_a_finished_job(world: RestWorld, job: str) -> None:
    await fail(world)
    cancelled = await world.http.post(f"{job}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "failed")
    paused = await world.http.post(f"{job}/pause")
    assert (paused.status_code, paused.json()["reason"]) == (409, "CONFLICT")
    changed = await world.http.patch(job, json={"priority": 1})
    assert changed.status_code == 409


async def test_more_replicas_than_the_quota_are_refused_with_a_pointer(
    world: RestWorld, tmp_path: Path
) -> None:
    spec = spec_document(tmp_path)
    spec["policies"]["p"]["replicas"] = 5
    for params in ({}, {"dry_run": "true"}):
        answer = await world.http.post("/v1/jobs", json=spec, params=params)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/policies/p/replicas"
    spec["policies"]["p"]["replicas"] = 4
    assert (await world.http.post("/v1/jobs", json=spec)).status_code == 201


@pytest.mark.parametrize(
    ("path", "pointer", "words"),
    [
        ("/v1/jobs?limitt=3", "/query/limitt", "did you mean 'limit'?"),
        ("/v1/jobs/demo-1/episodes?min_rewrad=0.5", "/query/min_rewrad", "'min_reward'?"),
        ("/v1/jobs/demo-1?verbose=1", "/query/verbose", "this path takes none"),
        ("/v1/jobs/demo-1/episodes?min_reward=nan", "/query/min_reward", "finite"),
        ("/v1/jobs/demo-1/events?after=yesterday", "/query/after", "not the id of an event"),
    ],
)
async def test_parameter_that_means_nothing_is_422_with_its_pointer(
    world: RestWorld, job: str, path: str, pointer: str, words: str
) -> None:
    answer = await world.http.get(path)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in fault["message"]


async def test_place_of_a_stream_that_is_none_is_422_with_the_headers_pointer(
    world: RestWorld, job: str
) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "yesterday"}
    answer = await world.http.get(f"{job}/events", headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/header/last-event-id"


async def test_path_or_method_that_is_not_there_says_where_to_look(
    world: RestWorld, job: str
) -> None:
    lost = await world.http.get("/v1/jobz")
    assert (lost.status_code, lost.json()["reason"]) == (404, "NOT_FOUND")
    assert lost.json()["detail"] == "there is no path /v1/jobz; /openapi.json lists all"
    wrong = await world.http.put(job)
    assert (wrong.status_code, wrong.json()["reason"]) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == "DELETE, GET, PATCH"
    assert (await world.http.put("/v1/jobs")).headers["allow"] == "GET, POST"


async def test_paused_job_waits_keeps_its_step_and_goes_on_in_a_new_life(
    world: RestWorld, job: str
) -> None:
    assert (await world.http.post(f"{job}/pause")).json()["state"] == "paused"
    assert (await world.http.post(f"{job}/pause")).json()["state"] == "paused"
    await world.store.set_step("demo-1", 1)
    await StepLedger(world.redis, "demo-1").commit_version("shared", 1, "digest")
    back = (await world.http.post(f"{job}/resume")).json()
    assert (back["state"], back["life"], back["step"]) == ("queued", 2, 1)
    await world.store.transition("demo-1", "launching")
    assert (await world.http.post(f"{job}/pause")).json()["state"] == "pausing"
    too_soon = await world.http.post(f"{job}/resume")
    assert too_soon.status_code == 409 and "once it is paused" in too_soon.json()["detail"]
    await world.store.transition("demo-1", "paused")
    assert (await world.http.post(f"{job}/resume")).json()["state"] == "queued"
    assert (await world.http.post(f"{job}/cancel")).json()["state"] == "cancelling"
    too_soon = await world.http.post(f"{job}/resume")
    assert too_soon.status_code == 409 and "once it is cancelled" in too_soon.json()["detail"]


async def test_priority_moves_a_job_in_the_queue(world: RestWorld, tmp_path: Path) -> None:
    spec = spec_document(tmp_path)
    for _ in range(2):
        await world.http.post("/v1/jobs", json=spec)
    assert (await world.http.get("/v1/jobs/demo-2")).json()["queue_position"] == 2
    moved = await world.http.patch("/v1/jobs/demo-2", json={"priority": 5})
    assert (moved.json()["priority"], moved.json()["queue_position"]) == (5, 1)
    bad = await world.http.patch("/v1/jobs/demo-2", json={"priority": 1000, "x": 1})
    assert {e["pointer"] for e in bad.json()["errors"]} == {"/priority", "/x"}
    queued = (await world.http.get("/v1/quota")).json()["queued"]
    assert [j["job_id"] for j in queued] == ["demo-2", "demo-1"]


async def test_text_of_models_comes_back_as_json_and_never_as_a_page(
    world: RestWorld, tmp_path: Path
) -> None:
    spec = spec_document(tmp_path, name="<script>")
    answer = await world.http.post("/v1/jobs", json=spec)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


async def served(world: RestWorld) -> tuple[uvicorn.Server, "asyncio.Task[None]", int]:
    config = uvicorn.Config(world.app, port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.01)
    return server, task, server.servers[0].sockets[0].getsockname()[1]


async def follower(port: int, path: str, **headers: str) -> Any:
    """A connection that asked for the stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"GET {path}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n{more}\r\n"
    writer.write(request.encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def next_id(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(30):
        while True:
            line = await reader.readline()
            if line.startswith(b"id: "):
                return line[4:].strip().decode()


async def test_client_that_never_reads_holds_up_nobody_and_costs_no_memory(
    world: RestWorld, job: str, redis: Redis
) -> None:
    server, task, port = await served(world)
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        lazy.connect(("127.0.0.1", port))
        lazy.sendall(
            f"GET {job}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        reader, writer = await follower(port, job)
        log = EventLog(redis, "demo-1", source="test")
        for number in range(300):
            await log.emit("job.warning", {"number": number, "text": "x" * 4000})
        ids = [await next_id(reader) for _ in range(301)]
        assert ids == sorted(ids, key=lambda i: tuple(map(int, i.split("-"))))
        assert len(set(ids)) == 301
        feed = world.fanout._feeds["demo-1"]
        assert (feed.followers, len(feed.tail)) == (2, 256)
        writer.close()
    finally:
        lazy.close()
        server.should_exit = True
        await asyncio.wait_for(task, 20)
    assert world.fanout.num_followers == 0


async def test_follower_goes_on_after_its_last_event_and_too_many_are_429(
    world: RestWorld, job: str, redis: Redis
) -> None:
    server, task, port = await served(world)
    writers: list[Any] = []
    try:
        log = EventLog(redis, "demo-1", source="test")
        reader, writer = await follower(port, job)
        first = await next_id(reader)
        await log.emit("job.warning", {"number": 1})
        second = await next_id(reader)
        again, writer_2 = await follower(port, job, **{"Last-Event-ID": first})
        assert await next_id(again) == second
        third, writer_3 = await follower(port, job)
        assert await next_id(third) == first
        writers += [writer, writer_2, writer_3]
        answer = await world.http.get(f"{job}/events", headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.json()["reason"]) == (429, "OVERLOADED")
    finally:
        for one in writers:
            one.close()
        server.should_exit = True
        await asyncio.wait_for(task, 20)
