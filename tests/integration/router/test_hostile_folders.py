"""Whatever a run folder holds: its own job alone is broken, and every answer of REST is valid."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, episode_line, rest_world, spec_document, write_lines

from troupe.runtime.streams.events import EventLog
from troupe.spec import parse_spec
from troupe_router.jobs.record import JobRecord
from troupe_router.run.events_file import keep_events

GARBAGE = "\ud800"
"""Half of a surrogate pair: JSON can hold it, UTF-8 can't."""


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


JOB: tuple[dict[str, Any], ...] = (
    {"reason": GARBAGE},
    {"owner": GARBAGE},
    {"reason": "\0"},
    {"tracked": {GARBAGE: 1}},
    {"tracked": {"0": 10**400}},
    {"tracked": {"../x": -5}},
    {"tracked": {"a" * 10**4: 5}},
    {"created_at": 2**53 - 1},
    {"created_at": 5e-324},
    {"ended_at": 9e15},
    {"life": 2**31 - 1, "step": 2**31 - 1},
    {"priority": 101},
    {"version": 2**70},
    {"state": "??"},
    {"job_id": "../../etc"},
    {"job_id": "whole-1"},
)
SPEC: tuple[dict[str, Any], ...] = (
    {"name": GARBAGE},
    {"task": {"name": "plan_path", "params": {"x": GARBAGE}}},
    {"policies": {GARBAGE: {"model": "x"}}},
    {"steps": 10**400},
    {"steps": float("inf")},
    {"seed": float("nan")},
    {"task": {"name": "plan_path", "params": {"x": float("inf")}}},
    {"task": {"name": "plan_path", "params": {"x": 10**4000}}},
    {"policies": {"p": {"model": "/etc/passwd"}}},
    {"name": "x" * 10**6},
)
EVENT = {"id": "1700000000000-9", "type": "x", "occurred_at": 1.7e9, "source": "s"}
EVENTS: tuple[dict[str, Any], ...] = (
    *({"occurred_at": value} for value in (float("inf"), float("nan"), -1.0, "now", 1e300)),
    *({"data": value} for value in ('{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', "[]", 5)),
    {"data": f'{{"a": "\\ud800{GARBAGE}"}}'},
    *({"data": f'{{"a": {"9" * digits}}}'} for digits in (4000, 5000)),
    *({"data": f'{{"a": {deep(levels)}}}'} for levels in (40, 300, 900, 90_000)),
    *({"id": value} for value in ("0-0", "9223372036854775807-9223372036854775807", "x", 7)),
    *({"type": value} for value in ("", GARBAGE, "a\nb", "job.state", "step.learned", None)),
    {"event_id": ""},
    {"source": "\0"},
)
RAW: tuple[tuple[str, str], ...] = (
    *((name, text) for name in ("spec.json", "job.json") for text in ("{}", "[]", "null", "\0")),
    ("spec.json", f'{{"name": "demo", "task": {deep(5000)}}}'),
    ("spec.json", f'{{"name": "demo", "task": {deep(900)}}}'),
    ("job.json", deep(50_000)),
    ("events.jsonl", "\0" * 1000),
    ("events.jsonl", f"{deep(100_000)}\n"),
    ("events.jsonl", "[]\n"),
)
LINES = (
    "\0" * 500,
    "[]\n",
    "{}\n",
    '{"episode_id": 5}\n',
    f"{deep(100_000)}\n",
    '{"episode_id": "\\ud800"}\n',
    "nan\n",
    '{"kind": "train", "step": 1e400, "episode_id": "ID/train-00001/00000"}\n',
    f'{{"kind": "train", "step": {"9" * 30}, "episode_id": "ID/train-00001/00000"}}\n',
    '{"groups": 5, "episode_id": "ID/train-00009/00000", "step": 9, "kind": "train"}\n',
)


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(redis, tmp_path) as found:
        found.settings.runs_dir.mkdir()
        yield found


async def add(world: RestWorld, tmp_path: Path, name: str) -> Path:
    """A job that succeeded, with the files that REST reads."""
    run_dir = world.settings.runs_dir / name
    run_dir.mkdir()
    spec = parse_spec(spec_document(tmp_path))
    (run_dir / "spec.json").write_text(spec.model_dump_json(indent=2))
    record = JobRecord(name, spec, run_dir, "succeeded", created_at=1.7e9)
    await world.store.create(replace(record, ended_at=1.7e9 + 5))
    log = EventLog(world.redis, name, source="router")
    await log.emit("job.state", {"state": "succeeded", "reason": ""}, event_id="1:succeeded")
    await keep_events(log, run_dir)
    steps = [{"kind": "train", "step": i, "reward_mean": i / 3, "wall_s": 1.5} for i in range(2)]
    write_lines(run_dir / "metrics.jsonl", [{"kind": "eval", "step": 0, "success": 0.5}, *steps])
    episodes = [episode_line(name, f"train-{i:05d}", 0, rewards=(1.0, 0.0)) for i in range(2)]
    write_lines(run_dir / "episodes.jsonl", episodes)
    return run_dir


def alter(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


async def faults(world: RestWorld, name: str) -> list[str]:
    """Answers about this job that are no valid JSON, or an error of the server."""
    job, found = f"/v1/jobs/{name}", list[str]()
    parts = ("", "/spec", "/events", "/progress", "/metrics", "/steps", "/steps/1", "/episodes")
    more = (f"{job}/episodes?failure=any&limit=1&order=oldest", f"{job}/episodes/train-00001-00000")
    for path in (*(f"{job}{part}" for part in parts), *more):
        answer = await world.http.get(path)
        if answer.status_code not in (200, 404, 409, 422):
            found.append(f"{path}: {answer.status_code} {answer.text[:200]}")
        elif answer.status_code == 200 and "json" in answer.headers["content-type"]:
            json.loads(answer.text, parse_constant=_refuse)
    return found


@pytest.mark.timeout(300)
async def test_import_when_folders_hold_anything_then_the_others_come_back_and_rest_answers(
    world: RestWorld, tmp_path: Path
) -> None:
    names = ["whole-1"]
    await add(world, tmp_path, "whole-1")
    for kind, variants in (("job", JOB), ("spec", SPEC)):
        for number, changes in enumerate(variants):
            run_dir = await add(world, tmp_path, f"{kind}-{number}")
            alter(run_dir / f"{kind}.json", changes)
            names.append(run_dir.name)
    for number, changes in enumerate(EVENTS):
        run_dir = await add(world, tmp_path, f"event-{number}")
        line = {**EVENT, "event_id": "e", "data": "{}", **changes}
        (run_dir / "events.jsonl").write_text(f"{json.dumps(line)}\n")
        names.append(run_dir.name)
    for number, (name, text) in enumerate(RAW):
        run_dir = await add(world, tmp_path, f"raw-{number}")
        (run_dir / name).write_text(text)
        names.append(run_dir.name)
    await world.redis.flushall()

    answer = await world.http.post("/v1/run-folders/import")
    assert answer.status_code == 200, answer.text
    outcome = answer.json()
    broken = {folder["name"] for folder in outcome["broken"]}
    assert broken.isdisjoint(outcome["imported"])
    assert broken | set(outcome["imported"]) == set(names)
    assert {"whole-1", *(f"event-{n}" for n in range(len(EVENTS)))} <= set(outcome["imported"])
    assert "job-1" in broken
    for path in ("/v1/jobs?limit=200", "/v1/run-folders", "/v1/quota"):
        json.loads((await world.http.get(path)).text, parse_constant=_refuse)
    for name in outcome["imported"]:
        assert await faults(world, name) == []
        await EventLog(world.redis, name, source="router").emit("after", {})
    query = {"max_age_s": 1, "dry_run": True}
    assert (await world.http.delete("/v1/run-folders", params=query)).status_code == 200


@pytest.mark.timeout(300)
async def test_rest_when_records_hold_anything_then_each_answer_is_valid(
    world: RestWorld, tmp_path: Path
) -> None:
    found: dict[str, list[str]] = {}
    for number, text in enumerate(LINES):
        for file in ("episodes.jsonl", "metrics.jsonl"):
            for place in ("end", "start"):
                name = f"{file[:2]}-{place}-{number}"
                path = await add(world, tmp_path, name) / file
                garbage = text.replace("ID", name)
                whole = path.read_text()
                path.write_text(whole + garbage if place == "end" else garbage + whole)
                found[f"{name} {garbage[:40]!r}"] = await faults(world, name)
    assert {case: words for case, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "settings",
    [{"rest_address": "0.0.0.0:8480", "allow_anonymous": True, "rate_per_s": 0.0}, {}],
    ids=["public", "loopback"],
)
async def test_episode_when_its_spec_names_code_then_a_public_router_imports_none(
    redis: Redis, tmp_path: Path, settings: dict[str, Any]
) -> None:
    told = tmp_path / "imported"
    code = tmp_path / "hostile_task.py"
    code.write_text(f"from pathlib import Path\nPath({str(told)!r}).touch()\n")
    async with rest_world(redis, tmp_path, **settings) as world:
        world.settings.runs_dir.mkdir()
        run_dir = await add(world, tmp_path, "stray-1")
        alter(run_dir / "spec.json", {"task": {"name": f"{code}:Family"}})
        await redis.flushall()
        assert (await world.http.post("/v1/run-folders/import")).json()["imported"] == ["stray-1"]

        answer = await world.http.get("/v1/jobs/stray-1/episodes/train-00001-00000")
    assert told.exists() is (not settings)
    assert answer.status_code == 200, answer.text
    [turn] = answer.json()["turns"]
    first = turn["groups"][0]["candidates"][0]
    assert (first["reward"], first["reward_parts"], first["advantage"]) == (1.0, [], None)


async def test_episode_when_its_tasks_data_may_not_be_read_then_is_shown_without_credits(
    redis: Redis, tmp_path: Path
) -> None:
    public = {"rest_address": "0.0.0.0:8480", "allow_anonymous": True, "rate_per_s": 0.0}
    async with rest_world(redis, tmp_path, **public) as world:
        world.settings.runs_dir.mkdir()
        run_dir = await add(world, tmp_path, "stray-1")
        changes = {
            "task": {"name": "math", "params": {"data": "/etc/passwd"}},
            "workflow": {"order": ["tool", "reasoner"], "max_turns": 4},
            "agents": {"tool": {"policy": "p"}, "reasoner": {"policy": "p"}},
        }
        alter(run_dir / "spec.json", changes)
        await redis.flushall()
        await world.http.post("/v1/run-folders/import")

        answer = await world.http.get("/v1/jobs/stray-1/episodes/train-00001-00000")
    assert answer.status_code == 200, answer.text
    assert answer.json()["turns"][0]["groups"][0]["candidates"][0]["reward_parts"] == []
    assert "root:" not in answer.text
