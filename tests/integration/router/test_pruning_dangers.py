"""What happens while retention works: pins that a disk refused, new jobs, a full disk, clocks."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document
from test_pruning import DAY, add, jobs, prune

from troupe.aio import cancel_all
from troupe.clients.rest.models.jobs import JobState
from troupe.runtime.streams import keys
from troupe.runtime.streams.versions import RECORD_VERSION, VERSION_FIELD
from troupe_router.conduct import run_folder_keeper
from troupe_router.conduct.run_folder_keeper import RunFolderKeeper
from troupe_router.jobs import store as store_module
from troupe_router.jobs.discard import DISCARDED
from troupe_router.run import pruning as pruning_module
from troupe_router.run.pruning import named_folders


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    limits = {"retention_max_jobs": 1, "retention_every_s": 0.001}
    async with rest_world(redis, tmp_path, **limits) as found:
        found.settings.runs_dir.mkdir()
        yield found


def keeper(world: RestWorld) -> RunFolderKeeper:
    parts = world.app.state.parts
    return RunFolderKeeper(world.store, parts.importing, parts.pruning, world.settings)


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_prune_when_the_disk_refused_the_pin_then_the_job_stays_all_the_same(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=9)
    with monkeypatch.context() as full:
        full.setattr(store_module, "write_job", refuse)
        answer = await world.http.patch("/v1/jobs/demo-1", json={"is_pinned": True})
    assert answer.json()["is_pinned"] is True
    assert '"is_pinned": false' in (run_dir / "job.json").read_text()
    assert (await prune(world, max_age_s=1))["removed"] == []
    # A router that starts brings the file to what was answered, for a Redis that is lost later.
    world.store.unwritten.clear()
    await keeper(world).start()
    await world.redis.flushall()
    await keeper(world).start()
    assert (await prune(world, max_age_s=1))["removed"] == []
    assert (run_dir / "checkpoints").is_dir()


@pytest.mark.parametrize("is_measured", [False, True])
@pytest.mark.parametrize("state", ["succeeded", "failed"])
async def test_prune_when_the_file_of_a_job_that_ended_now_lags_then_its_folder_stays(
    world: RestWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: JobState,
    is_measured: bool,
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=0, state="running", ended_at=0.0)
    if is_measured:
        await prune(world, max_age_s=30 * DAY)
    with monkeypatch.context() as slow:
        slow.setattr(store_module, "write_job", refuse)
        await world.store.transition("demo-1", state)
    assert '"state": "running"' in (run_dir / "job.json").read_text()
    done = await prune(world, max_age_s=30 * DAY)
    assert (done["removed"], done["protected"]) == ([], [])
    assert (run_dir / "checkpoints").is_dir()


async def test_prune_when_nobody_knows_when_a_job_ended_then_its_folder_stays(
    world: RestWorld, tmp_path: Path
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=0, ended_at=0.0)
    done = await prune(world, max_age_s=1)
    assert done["removed"] == []
    [protected] = done["protected"]
    assert protected["reason"] == "it is not known when the job ended"
    assert (run_dir / "checkpoints").is_dir()


async def test_prune_when_another_router_removes_a_job_meanwhile_then_no_other_goes_for_it(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        await add(world, tmp_path, f"demo-{number}", days=9 - number)
    ask = world.store.ended_at

    async def asked_late(job_ids: Collection[str]) -> dict[str, float]:
        await world.redis.delete(keys.job("demo-1"))
        return await ask(job_ids)

    monkeypatch.setattr(world.store, "ended_at", asked_late)
    assert (await prune(world, max_jobs=2))["removed"] == []


async def test_prune_when_a_job_of_a_newer_version_reads_a_folder_then_it_stays(
    world: RestWorld, tmp_path: Path
) -> None:
    base = await add(world, tmp_path, "base-1", days=9)
    spec = {"policies": {"p": {"model": str(base / "policies" / "p" / "merged")}}}
    await add(world, tmp_path, "reader-1", days=9, state="running", spec=spec)
    newer = {VERSION_FIELD: RECORD_VERSION + 1}
    await world.redis.hset(keys.job("reader-1"), mapping=cast("dict[Any, Any]", newer))
    done = await prune(world, max_age_s=1)
    assert done["removed"] == []
    assert (base / "checkpoints").is_dir()


async def test_keeper_when_a_look_fails_with_any_error_then_it_looks_again(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await add(world, tmp_path, f"demo-{number}", days=9 - number)
    monkeypatch.setattr(run_folder_keeper, "_LOOK_S", 0.01)
    pruning, failures = world.app.state.parts.pruning, list[str]()
    whole = pruning.run

    async def fail_once(*args: Any) -> Any:
        if not failures:
            failures.append("once")
            raise KeyError("demo-1")
        return await whole(*args)

    monkeypatch.setattr(pruning, "run", fail_once)
    keeping = asyncio.create_task(keeper(world).run())
    async with asyncio.timeout(30):
        while await jobs(world) != {"demo-2"}:
            assert not keeping.done()
    await cancel_all(keeping)
    assert failures == ["once"]


@pytest.mark.parametrize("what", ["pinned", "read", "resumed"])
async def test_prune_when_a_job_is_wanted_while_others_are_removed_then_it_stays(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(pruning_module, "_READ_S", 0.0)
    await add(world, tmp_path, "demo-1", days=50, state="failed")
    wanted = await add(world, tmp_path, "demo-2", days=49, state="failed")
    commands = world.app.state.parts.pruning._commands
    delete = commands.delete

    async def delete_slowly(job_id: str, *, files: bool) -> None:
        await delete(job_id, files=files)
        if job_id != "demo-1":
            return
        if what == "pinned":
            await world.store.set_pinned("demo-2", True)
        elif what == "resumed":
            await world.store.transition("demo-2", "queued")
        else:
            spec = {"policies": {"p": {"model": str(wanted / "policies" / "p" / "merged")}}}
            await add(world, tmp_path, "reader-1", days=0, state="running", spec=spec)

    monkeypatch.setattr(commands, "delete", delete_slowly)
    done = await prune(world, max_age_s=1)
    assert [folder["name"] for folder in done["removed"]] == ["demo-1"]
    assert (wanted / "checkpoints").is_dir()
    assert "demo-2" in await jobs(world)


async def test_prune_when_there_is_no_room_for_an_empty_folder_then_it_frees_the_disk(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=9)
    (world.settings.runs_dir / DISCARDED).mkdir()
    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", refuse)
        done = await prune(world, max_age_s=1)
    assert [folder["name"] for folder in done["removed"]] == ["demo-1"]
    assert list(run_dir.iterdir()) == []
    assert list((world.settings.runs_dir / DISCARDED).iterdir()) == []
    submitted = await world.http.post("/v1/jobs", json=spec_document(tmp_path))
    assert submitted.json()["job_id"] == "demo-2"


async def test_keeper_when_the_clock_is_set_forward_then_retention_waits_and_removes_nothing(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await add(world, tmp_path, f"demo-{number}", days=9 - number)
    found = keeper(world)
    offset = run_folder_keeper._clock_offset()
    monkeypatch.setattr(run_folder_keeper, "_clock_offset", lambda: offset + 400 * DAY)
    for _ in range(3):
        await found._look()
    assert await jobs(world) == {"demo-1", "demo-2"}
    # A clock that stays as it is becomes trusted.
    found._next_pruning = time.monotonic()
    await found._look()
    assert await jobs(world) == {"demo-2"}


async def test_keeper_when_redis_takes_no_writes_at_the_start_then_it_begins_later(
    world: RestWorld, tmp_path: Path
) -> None:
    await add(world, tmp_path, "demo-1", days=1)
    await world.redis.flushall()
    await world.redis.config_set("min-replicas-to-write", 1)
    found = keeper(world)
    try:
        await found.start()
        assert await jobs(world) == set()
    finally:
        await world.redis.config_set("min-replicas-to-write", 0)
    await found._look()
    assert await jobs(world) == {"demo-1"}


def test_named_folders_when_paths_are_written_in_any_way_then_the_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_dir = tmp_path / "runs"
    (runs_dir / "demo-1" / "merged").mkdir(parents=True)
    (tmp_path / "models").symlink_to(runs_dir / "demo-1" / "merged")
    (tmp_path / "data").symlink_to(runs_dir)
    monkeypatch.chdir(tmp_path)
    texts = (
        str(runs_dir / "demo-1" / "merged"),
        str(runs_dir / "demo-1"),
        "runs/demo-1/merged",
        "./runs//demo-1",
        "runs/../runs/demo-1/merged",
        str(tmp_path / "models"),
        "./models",
        str(tmp_path / "data" / "demo-1" / "merged"),
        "/mnt/elsewhere/runs/demo-1/merged",
    )
    for text in texts:
        assert "demo-1" in named_folders(runs_dir, [f'{{"policies": {{"p": ["{text}"]}}}}']), text
    assert named_folders(
        runs_dir, ['{"a": "Qwen/Qwen3", "b": "demo-1", "c": 5, "d": "\\u0000/"}']
    ) == (set())


async def test_imports_when_several_run_at_once_and_one_is_cut_off_then_each_job_is_there_once(
    world: RestWorld, tmp_path: Path
) -> None:
    names = {f"demo-{number}" for number in range(1, 81)}
    for name in names:
        await add(world, tmp_path, name, days=1)
    await world.redis.flushall()
    parts = world.app.state.parts
    cut_off = asyncio.create_task(parts.importing.run())
    while len(await world.store.states()) < 5:
        pass
    cut_off.cancel()
    await asyncio.gather(cut_off, return_exceptions=True)
    assert await parts.importing.is_due(), "an import that was cut off is not made up for"
    outcomes = await asyncio.gather(*(parts.importing.run() for _ in range(3)))
    assert all(outcome.broken == {} for outcome in outcomes)
    assert set(await world.store.states()) == names
    for name in names:
        events = (await world.http.get(f"/v1/jobs/{name}/events")).text
        assert events.count("\n\n") <= 2


async def test_prunings_when_two_run_at_once_then_a_folder_is_removed_once_and_no_other(
    world: RestWorld, tmp_path: Path
) -> None:
    for number in range(1, 31):
        await add(world, tmp_path, f"demo-{number}", days=60 - number)
    answers = await asyncio.gather(*(prune(world, max_jobs=10) for _ in range(2)))
    removed = [folder["name"] for answer in answers for folder in answer["removed"]]
    assert sorted(set(removed)) == sorted(f"demo-{number}" for number in range(1, 21))
    assert await jobs(world) == {f"demo-{number}" for number in range(21, 31)}
    assert all(
        (world.settings.runs_dir / f"demo-{number}" / "job.json").is_file() == (number > 20)
        for number in range(1, 31)
    )
