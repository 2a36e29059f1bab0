"""The run folder is the record: a Redis that is emptied loses no job."""

import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from job_world import JOB, IdleLauncher, World, job_spec
from redis.asyncio import Redis
from rest_world import RestWorld, episode_line, rest_world, spec_document, write_lines

from troupe.clients.rest.models.jobs import JobState
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.spec import parse_spec
from troupe_router.conduct.run_folder_keeper import RunFolderKeeper
from troupe_router.jobs import store as store_module
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import FINISHED
from troupe_router.run import events_file
from troupe_router.run.events_file import keep_events, kept_events
from troupe_router.run.importing import JobImport
from troupe_router.run.pruning import RunPruning

STATES: tuple[JobState, ...] = get_args(JobState)


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(redis, tmp_path) as found:
        found.settings.runs_dir.mkdir()
        yield found


async def add(world: RestWorld, tmp_path: Path, name: str, state: JobState, **more: Any) -> Path:
    """A job as its router has left it, with a run folder and events."""
    run_dir = world.settings.runs_dir / name
    run_dir.mkdir()
    spec = parse_spec(spec_document(tmp_path))
    (run_dir / "spec.json").write_text(spec.model_dump_json(indent=2))
    number = int(name.rpartition("-")[2])
    base = JobRecord(name, spec, run_dir, state, created_at=1_700_000_000.123456 + number)
    record = replace(base, **more)
    await world.store.create(record)
    log = EventLog(world.redis, name, source="router")
    await log.emit("job.state", {"state": "queued", "reason": ""}, event_id="1:queued")
    await log.emit("job.state", {"state": state, "reason": ""}, event_id=f"{record.life}:{state}")
    if state in FINISHED or state == "paused":
        await keep_events(log, run_dir)
    return run_dir


def left_by_a_run(run_dir: Path) -> None:
    """What REST reads of a finished job."""
    name = run_dir.name
    lines = [{"kind": "train", "step": i, "reward_mean": i / 3, "wall_s": 1.5} for i in range(2)]
    write_lines(run_dir / "metrics.jsonl", [{"kind": "eval", "step": 0, "success": 0.5}, *lines])
    episodes = [episode_line(name, f"train-{i:05d}", 0, rewards=(1.0, 0.0)) for i in range(2)]
    write_lines(run_dir / "episodes.jsonl", episodes)
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "trainer-0.log").write_text("one\ntwo\n")
    adapter = run_dir / "policies" / "p" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}")
    (run_dir / "report.md").write_text("# demo")


async def answers(world: RestWorld, name: str) -> dict[str, bytes]:
    """Every REST answer of a job, by path."""
    job = f"/v1/jobs/{name}"
    episode = f"{job}/episodes/train-00001-00000"
    paths = [
        job,
        *(f"{job}/{part}" for part in ("spec", "events", "progress", "metrics", "steps")),
        *(f"{job}/{part}" for part in ("steps/1", "episodes", "checkpoints", "logs")),
        f"{job}/episodes?failure=any&limit=1&order=oldest",
        f"{job}/logs/trainer-0",
        f"{job}/checkpoints/final/p",
        episode,
        "/v1/jobs",
        "/v1/jobs?state=failed&state=succeeded&limit=2",
        "/v1/quota",
    ]
    found: dict[str, bytes] = {}
    for path in paths:
        answer = await world.http.get(path)
        assert answer.status_code == 200, (path, answer.text)
        found[path] = answer.content
    return found


def importing(world: RestWorld) -> JobImport:
    return JobImport(world.redis, world.store, world.settings.runs_dir)


async def test_jobs_that_ended_when_redis_is_emptied_then_every_answer_is_the_same_byte_for_byte(
    world: RestWorld, tmp_path: Path
) -> None:
    ends: list[tuple[JobState, str, str]] = [
        ("succeeded", "", "ci"),
        ("failed", "the trainer ended: “ünïcödé” \n", "alice"),
        ("cancelled", "cancelled by the user", ""),
        ("paused", "paused by the user", "bob"),
    ]
    for number, (state, reason, owner) in enumerate(ends, 1):
        more = {"reason": reason, "owner": owner, "life": number, "step": number, "priority": 3}
        times = {"started_at": 1.7e9 + 0.1, "ended_at": 0.0 if state == "paused" else 1.7e9 + 9.7}
        run_dir = await add(world, tmp_path, f"demo-{number}", state, **more, **times)
        left_by_a_run(run_dir)
    names = [f"demo-{n}" for n in range(1, 5)]
    before = {name: await answers(world, name) for name in names}
    page = (await world.http.get("/v1/jobs", params={"limit": 2})).json()

    await world.redis.flushall()
    assert (await world.http.get("/v1/jobs/demo-1")).status_code == 404
    outcome = (await world.http.post("/v1/run-folders/import")).json()

    assert outcome["imported"] == names
    assert outcome["broken"] == []
    assert {name: await answers(world, name) for name in names} == before
    older = await world.http.get("/v1/jobs", params={"cursor": page["next_cursor"]})
    assert [job["job_id"] for job in older.json()["jobs"]] == ["demo-2", "demo-1"]


@pytest.mark.parametrize("state", [s for s in STATES if s not in FINISHED and s != "paused"])
async def test_job_that_had_not_ended_when_redis_is_emptied_then_it_rests_and_can_be_resumed(
    world: RestWorld, tmp_path: Path, state: JobState
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", state, owner="ci", life=2, step=7, priority=4)
    (run_dir / "checkpoints" / "step-00006").mkdir(parents=True)
    await world.redis.flushall()
    await importing(world).run()

    job = (await world.http.get("/v1/jobs/demo-1")).json()
    assert (job["owner"], job["life"], job["step"], job["priority"]) == ("ci", 2, 7, 4)
    assert job["created_at"] == 1_700_000_001.123456
    if state == "cancelling":
        assert job["state"] == "cancelling"
        return
    assert job["state"] == ("paused" if state == "queued" else "pausing")
    assert f"while it was {state}" in job["reason"]
    assert "checkpoint of step 6" in job["reason"]
    if job["state"] == "pausing":
        await world.store.transition("demo-1", "paused", reason=job["reason"])
    # A conductor that did not yet notice the loss leaves notes and rounds of the old life.
    await world.store.note("demo-1", "offset:train-00006", 12345)
    await world.redis.hset(keys.round_state("demo-1", "train-00006"), "num_done", "3")
    resumed = (await world.http.post("/v1/jobs/demo-1/resume")).json()
    assert (resumed["state"], resumed["life"], resumed["owner"]) == ("queued", 3, "ci")
    assert resumed["created_at"] == job["created_at"]
    assert await world.store.notes("demo-1") == {}
    assert not await world.redis.exists(keys.round_state("demo-1", "train-00006"))


async def test_running_job_when_redis_is_emptied_then_its_launcher_ends_what_is_left_of_it(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []

    async def stop(_: IdleLauncher, owner: str, *, grace_s: float) -> None:
        stopped.append(owner)

    monkeypatch.setattr(IdleLauncher, "stop", stop)
    job = World(redis, tmp_path / "runs")
    record = await job.add_job(job_spec(), "running")
    (record.run_dir / "spec.json").write_text(record.spec.model_dump_json())
    await redis.flushall()
    await JobImport(redis, job.store, job.runs_dir).run()
    ended = await job.drive(await job.store.get(JOB))
    assert (ended.state, stopped) == ("paused", [JOB])
    assert "while it was running" in ended.reason


async def test_import_when_repeated_or_partly_done_then_changes_nothing_more(
    world: RestWorld, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        await add(world, tmp_path, f"demo-{number}", "succeeded")
    before = (await world.http.get("/v1/jobs")).content
    events = (await world.http.get("/v1/jobs/demo-2/events")).content
    await world.redis.flushall()
    # A zombie writes a field of a lost record; a killed import left its hash without the index.
    await world.redis.hset(keys.job("demo-1"), "step", "99")
    await importing(world).run()
    await world.redis.zrem(keys.JOBS, "demo-2")
    for _ in range(2):
        outcome = await importing(world).run()
    assert (outcome.jobs, outcome.known) == ([], 3)
    assert (await world.http.get("/v1/jobs")).content == before
    assert (await world.http.get("/v1/jobs/demo-2/events")).content == events


async def test_lost_record_when_its_conductor_still_writes_then_it_does_not_come_back_in_part(
    world: RestWorld, tmp_path: Path
) -> None:
    await add(world, tmp_path, "demo-1", "running")
    stored = (world.settings.runs_dir / "demo-1" / "job.json").read_bytes()
    await world.redis.flushall()
    await world.store.set_step("demo-1", 5)
    await world.store.note("demo-1", "play:4", {})
    assert not await world.redis.exists(keys.job("demo-1"))
    assert (world.settings.runs_dir / "demo-1" / "job.json").read_bytes() == stored


async def test_deleted_job_when_redis_is_emptied_then_it_stays_deleted(
    world: RestWorld, tmp_path: Path
) -> None:
    await add(world, tmp_path, "demo-1", "failed")
    kept = await add(world, tmp_path, "demo-2", "succeeded")
    emptied = await add(world, tmp_path, "demo-3", "succeeded")
    await world.http.delete("/v1/jobs/demo-2")
    await world.http.delete("/v1/jobs/demo-3", params={"files": True})
    assert (kept / "spec.json").exists()
    assert list(emptied.iterdir()) == []
    await world.redis.flushall()
    for guessing in (False, True):
        await world.http.post("/v1/run-folders/import", params={"earlier_versions": guessing})
        jobs = (await world.http.get("/v1/jobs")).json()["jobs"]
        assert [job["job_id"] for job in jobs] == ["demo-1"]
    statuses = {
        folder["name"]: folder["status"]
        for folder in (await world.http.get("/v1/run-folders")).json()["folders"]
    }
    assert statuses == {"demo-1": "listed", "demo-2": "deleted", "demo-3": "empty"}


@pytest.mark.parametrize("is_known", [True, False])
async def test_resume_when_the_job_succeeded_then_says_so_and_queues_nothing(
    world: RestWorld, tmp_path: Path, is_known: bool
) -> None:
    await add(world, tmp_path, "demo-1", "succeeded")
    if not is_known:
        await world.redis.flushall()
    answer = await world.http.post("/v1/jobs/demo-1/resume")
    assert answer.status_code == 409
    assert "demo-1' succeeded, and " in answer.json()["detail"]
    found = await world.store.find("demo-1")
    assert (found.state if found else None) == ("succeeded" if is_known else None)


async def test_folder_of_an_earlier_version_when_asked_for_then_its_summary_says_what_became_of_it(
    world: RestWorld, tmp_path: Path
) -> None:
    for number, summary in enumerate(
        ({"state": "succeeded", "reason": "", "lives": 3, "steps": 2}, {"state": "failed"}, None), 1
    ):
        run_dir = await add(world, tmp_path, f"demo-{number}", "succeeded")
        (run_dir / "job.json").unlink()
        if summary is not None:
            (run_dir / "summary.json").write_text(json.dumps(summary))
    await world.redis.flushall()
    assert (await importing(world).run()).jobs == []
    assert (await world.http.post("/v1/jobs/demo-1/resume")).status_code == 409
    await importing(world).run(with_guessed=True)
    jobs = (await world.http.get("/v1/jobs")).json()["jobs"]
    found = {job["job_id"]: (job["state"], job["life"], job["step"]) for job in jobs}
    assert found == {
        "demo-1": ("succeeded", 3, 2),
        "demo-2": ("failed", 1, 0),
        "demo-3": ("paused", 1, 0),
    }


def _set(**fields: Any) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        document = json.loads((run_dir / "job.json").read_text())
        (run_dir / "job.json").write_text(json.dumps({**document, **fields}))

    return change


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda run_dir: (run_dir / name).write_text(text) and None


def _link(name: str) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        target = run_dir.parent.parent / f"outside-{name}"
        (run_dir / name).rename(target)
        (run_dir / name).symlink_to(target)

    return change


def _pipe(name: str) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        (run_dir / name).unlink()
        os.mkfifo(run_dir / name)

    return change


def _folder(name: str) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        (run_dir / name).unlink()
        (run_dir / name).mkdir()

    return change


DAMAGE: dict[str, Callable[[Path], None]] = {
    "not JSON": _write("job.json", '{"state": '),
    "empty": _write("job.json", " "),
    "a list": _write("job.json", "[]"),
    "nested": _write("job.json", "[" * 60_000),
    "too long": _write("job.json", " " * (65 << 10)),
    "not UTF-8": lambda d: (d / "job.json").write_bytes(b'{"job_id": "\xff"}') and None,
    "another job's": _set(job_id="demo-1"),
    "a path": _set(job_id="../demo-2"),
    "unknown state": _set(state="done"),
    "newer": _set(version=2),
    "no version": _set(version=None),
    "NaN": _set(created_at=float("nan")),
    "infinite": _set(ended_at=float("inf")),
    "before 1970": _set(created_at=-1.0),
    "text for a number": _set(step="7"),
    "a huge number": _set(life=10**30),
    "a long reason": _set(reason="x" * 9000),
    "a long owner": _set(owner="x" * 900),
    "record is a link": _link("job.json"),
    "record is a pipe": _pipe("job.json"),
    "record is a folder": _folder("job.json"),
    "no spec": lambda d: (d / "spec.json").unlink(),
    "spec is no spec": _write("spec.json", '{"name": "demo"}'),
    "spec is not JSON": _write("spec.json", "name: demo"),
    "spec is nested": _write("spec.json", '{"task": ' * 3000),
    "spec is a link": _link("spec.json"),
    "spec is a pipe": _pipe("spec.json"),
    "spec too long": _write("spec.json", " " * (5 << 20)),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_broken_folder_when_imported_then_it_is_named_with_its_reason_and_stops_no_other(
    world: RestWorld, tmp_path: Path, damage: str
) -> None:
    for number in (1, 2, 3):
        await add(world, tmp_path, f"demo-{number}", "succeeded")
    DAMAGE[damage](world.settings.runs_dir / "demo-2")
    await world.redis.flushall()
    outcome = (await world.http.post("/v1/run-folders/import")).json()
    assert outcome["imported"] == ["demo-1", "demo-3"]
    [broken] = outcome["broken"]
    assert broken["name"] == "demo-2"
    assert ".json" in broken["reason"]
    assert str(tmp_path) not in broken["reason"]
    listed = (await world.http.get("/v1/run-folders")).json()["folders"]
    assert [folder["name"] for folder in listed] == ["demo-1", "demo-2", "demo-3"]
    assert (await world.http.get("/v1/jobs/demo-2")).status_code == 404


async def test_names_that_are_no_run_folder_then_nobody_looks_into_them(
    world: RestWorld, tmp_path: Path
) -> None:
    real = await add(world, tmp_path, "demo-1", "succeeded")
    runs_dir = world.settings.runs_dir
    outside = tmp_path / "outside"
    real.rename(outside)
    real.symlink_to(outside)
    for name in ("Upper-1", ".hidden", "a b", "ü-1", "x" * 70, "1-demo", "lost+found"):
        (runs_dir / name).mkdir()
        (runs_dir / name / "job.json").write_text("{")
    (runs_dir / "file-1").write_text("")
    await world.redis.flushall()
    outcome = await importing(world).run(with_guessed=True)
    assert (outcome.jobs, outcome.broken) == ([], {})
    assert (await world.http.get("/v1/run-folders")).json()["folders"] == []


@pytest.mark.parametrize(
    "text",
    ["{", '{"id": "1-0"}\n', "[]\n", '{"id":"x","type":"a","occurred_at":1,"source":"",'
     '"event_id":"","data":"{}"}\n', "[" * 10_000],
)  # fmt: skip
async def test_events_file_when_damaged_then_the_job_comes_back_without_its_events(
    world: RestWorld, tmp_path: Path, text: str
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", "succeeded")
    (run_dir / "events.jsonl").write_text(text)
    await world.redis.flushall()
    assert (await importing(world).run()).jobs == ["demo-1"]
    events = (await world.http.get("/v1/jobs/demo-1/events")).json()["events"]
    assert [event["data"]["state"] for event in events] == ["succeeded"]


async def test_events_file_when_there_are_too_many_bytes_then_has_the_newest(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", "succeeded")
    monkeypatch.setattr(events_file, "MAX_EVENTS_BYTES", 10_000)
    log = EventLog(world.redis, "demo-1", source="router")
    for number in range(9):
        await log.emit("job.warning", {"number": number, "text": "x" * 2000})
    await keep_events(log, run_dir)
    assert (run_dir / "events.jsonl").stat().st_size <= 10_000
    kept = [json.loads(stored.event.data_json) for stored in kept_events(run_dir, "demo-1")]
    assert [data["number"] for data in kept] == [5, 6, 7, 8]


async def test_folders_page_when_followed_then_every_folder_is_there_once(
    world: RestWorld, tmp_path: Path
) -> None:
    for number in range(1, 8):
        await add(world, tmp_path, f"demo-{number}", "succeeded")
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = (await world.http.get("/v1/run-folders", params=query)).json()
        seen += [folder["name"] for folder in page["folders"]]
        cursor = page["next_cursor"]
    assert seen == [f"demo-{number}" for number in range(1, 8)]


async def test_record_in_the_folder_when_the_job_changes_then_it_follows_each_change(
    world: RestWorld, tmp_path: Path
) -> None:
    submitted = await world.http.post("/v1/jobs", json=spec_document(tmp_path))
    path = world.settings.runs_dir / submitted.json()["job_id"] / "job.json"

    def stored(name: str) -> Any:
        return json.loads(path.read_text())[name]

    assert stored("state") == "queued"
    await world.http.patch("/v1/jobs/demo-1", json={"priority": 9})
    await world.http.patch("/v1/jobs/demo-1", json={"is_pinned": True})
    assert (stored("priority"), stored("is_pinned")) == (9, True)
    for state in ("launching", "running"):
        await world.store.transition("demo-1", state)
        assert stored("state") == state
    await world.store.note("demo-1", f"{store_module.TRACKED_NOTE}0", 12)
    await world.store.set_step("demo-1", 3)
    assert (stored("step"), stored("tracked")) == (3, {"0": 12})
    await world.store.transition("demo-1", "failed", reason="why")
    assert (stored("state"), stored("reason")) == ("failed", "why")
    await world.redis.flushall()
    await importing(world).run()
    assert await world.store.notes("demo-1") == {f"{store_module.TRACKED_NOTE}0": 12}
    await world.http.post("/v1/jobs/demo-1/resume")
    assert (stored("state"), stored("life"), stored("is_pinned")) == ("queued", 2, True)


async def test_record_when_the_disk_is_full_then_the_change_holds_and_it_is_written_later(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", "running")
    real = store_module.write_job

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "write_job", full)
    await world.store.transition("demo-1", "succeeded")
    assert json.loads((run_dir / "job.json").read_text())["state"] == "running"
    assert list(run_dir.glob("*.tmp")) == []
    monkeypatch.setattr(store_module, "write_job", real)
    await keeper(world)._look()
    assert json.loads((run_dir / "job.json").read_text())["state"] == "succeeded"


def keeper(world: RestWorld) -> RunFolderKeeper:
    pruning: RunPruning = world.app.state.parts.pruning
    return RunFolderKeeper(world.store, importing(world), pruning, world.settings)


async def test_router_when_redis_is_emptied_under_it_then_it_imports_by_itself_and_once(
    world: RestWorld, tmp_path: Path
) -> None:
    await add(world, tmp_path, "demo-1", "succeeded")
    await keeper(world).start()
    for _ in range(2):
        await world.redis.flushall()
        await keeper(world)._look()
        assert (await world.http.get("/v1/jobs/demo-1")).status_code == 200
    await world.redis.delete(keys.job("demo-1"), keys.JOBS)
    await keeper(world)._look()
    assert await world.store.find("demo-1") is None, "it looked again without a reason"


async def test_upgrade_when_redis_has_jobs_then_the_start_writes_their_records(
    world: RestWorld, tmp_path: Path
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", "failed", reason="why", owner="ci")
    before = (run_dir / "job.json").read_bytes()
    (run_dir / "job.json").unlink()
    await keeper(world).start()
    assert (run_dir / "job.json").read_bytes() == before


async def test_import_and_prune_when_keys_are_on_then_they_need_submit_and_admin(
    redis: Redis, tmp_path: Path
) -> None:
    from troupe.clients.rest.keys import add_key

    file = tmp_path / "keys.yaml"
    tokens = {scope: add_key(file, scope, (scope,)) for scope in ("read", "submit", "admin")}
    async with rest_world(redis, tmp_path, api_keys=file) as world:

        async def status(scope: str, method: str, path: str) -> int:
            headers = {"Authorization": f"Bearer {tokens[scope]}"}
            answer: httpx.Response = await world.http.request(method, path, headers=headers)
            return answer.status_code

        asked = [("GET", ""), ("POST", "/import"), ("DELETE", "?max_jobs=1&dry_run=true")]
        found = {
            scope: [await status(scope, method, f"/v1/run-folders{path}") for method, path in asked]
            for scope in tokens
        }
    assert found == {
        "read": [200, 403, 403],
        "submit": [200, 200, 403],
        "admin": [200, 200, 200],
    }
