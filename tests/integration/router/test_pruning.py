"""Retention on real folders: it removes what exceeds a limit, whole, and nothing else."""

import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.clients.rest.models.jobs import JobState
from troupe.runtime.telemetry import metrics
from troupe.spec import parse_spec
from troupe_router.conduct.run_folder_keeper import RunFolderKeeper
from troupe_router.jobs import discard as discard_module
from troupe_router.jobs.discard import DISCARDED
from troupe_router.jobs.record import JobRecord
from troupe_router.run.pruning import size_of

DAY = 86400.0


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    limits = {"retention_max_jobs": 1, "retention_every_s": 1000.0}
    async with rest_world(redis, tmp_path, **limits) as found:
        found.settings.runs_dir.mkdir()
        yield found


async def add(
    world: RestWorld, tmp_path: Path, name: str, *, days: float, state: JobState = "succeeded",
    size: int = 4096, **more: Any,
) -> Path:  # fmt: skip
    """A job that ended so many days ago, and its files."""
    run_dir = world.settings.runs_dir / name
    (run_dir / "checkpoints" / "step-00001").mkdir(parents=True)
    (run_dir / "checkpoints" / "step-00001" / "p.safetensors").write_bytes(b"x" * size)
    spec = parse_spec(spec_document(tmp_path, **more.pop("spec", {})))
    (run_dir / "spec.json").write_text(spec.model_dump_json())
    ended_at = time.time() - days * DAY
    record = JobRecord(name, spec, run_dir, state, created_at=ended_at - 60, ended_at=ended_at)
    await world.store.create(replace(record, **more))
    os.utime(run_dir / "job.json", (ended_at, ended_at))
    return run_dir


async def prune(world: RestWorld, **query: Any) -> Any:
    answer = await world.http.delete("/v1/run-folders", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


async def jobs(world: RestWorld) -> set[str]:
    return {job["job_id"] for job in (await world.http.get("/v1/jobs")).json()["jobs"]}


@pytest.mark.parametrize(
    ("query", "gone", "why"),
    [
        ({"max_age_s": 5 * DAY}, ["demo-1", "demo-2"], "age"),
        ({"max_jobs": 3}, ["demo-1"], "number"),
        ({"max_bytes": 450_000}, ["demo-1", "demo-2", "demo-3"], "size"),
    ],
)
async def test_prune_when_a_limit_is_exceeded_then_the_oldest_go_with_their_jobs(
    world: RestWorld, tmp_path: Path, query: dict[str, Any], gone: list[str], why: str
) -> None:
    for number in range(1, 5):
        await add(world, tmp_path, f"demo-{number}", days=10 - number * 2.1, size=400_000)
    before, files = await jobs(world), tree(world.settings.runs_dir)
    planned = await prune(world, **query, dry_run=True)
    assert tree(world.settings.runs_dir) == files
    assert await jobs(world) == before
    done = await prune(world, **query)
    assert [folder["name"] for folder in done["removed"]] == gone
    assert {folder["why"] for folder in done["removed"]} == {why}
    assert {**planned, "dry_run": False} == done
    assert done["freed_bytes"] >= len(gone) * 400_000
    assert await jobs(world) == before - set(gone)
    for name in gone:
        assert list((world.settings.runs_dir / name).iterdir()) == []
    assert list((world.settings.runs_dir / DISCARDED).iterdir()) == []
    again = await prune(world, **query)
    assert again["removed"] == []
    # A name that was used once stays used.
    submitted = await world.http.post("/v1/jobs", json=spec_document(tmp_path))
    assert submitted.json()["job_id"] == "demo-5"


async def test_prune_when_folders_are_protected_or_not_ours_then_it_leaves_every_byte(
    world: RestWorld, tmp_path: Path
) -> None:
    runs_dir = world.settings.runs_dir
    for number, state in enumerate(("queued", "launching", "running", "pausing", "cancelling"), 1):
        await add(world, tmp_path, f"live-{number}", days=99, state=state)
    for number, state in enumerate(("failed", "cancelled", "paused"), 1):
        await add(world, tmp_path, f"young-{number}", days=29, state=state)
    await add(world, tmp_path, "pinned-1", days=99)
    await world.http.patch("/v1/jobs/pinned-1", json={"is_pinned": True})
    base = await add(world, tmp_path, "base-1", days=99)
    model = str(base / "policies" / "p" / "merged")
    spec = {"policies": {"p": {"model": model}}}
    await add(world, tmp_path, "reader-1", days=99, state="running", spec=spec)
    outside = tmp_path / "outside"
    (await add(world, tmp_path, "linked-1", days=99)).rename(outside)
    (runs_dir / "linked-1").symlink_to(outside)
    copied = runs_dir / "copied-1"
    shutil.copytree(await add(world, tmp_path, "gone-1", days=99), copied)
    for name in ("notes", "Data-1", ".hidden", "broken-1", "empty-1"):
        (runs_dir / name).mkdir()
    (runs_dir / "notes" / "thesis.txt").write_text("years of work")
    (runs_dir / "broken-1" / "job.json").write_text("{")
    (runs_dir / "Data-1" / "job.json").write_text(
        (copied / "job.json").read_text().replace("gone-1", "Data-1")
    )
    (runs_dir / ".troupe").mkdir()
    (runs_dir / ".troupe" / "supervisor.json").write_text("{}")
    before = tree(tmp_path)

    done = await prune(world, max_age_s=1, max_jobs=1, max_bytes=1)
    assert [folder["name"] for folder in done["removed"]] == ["gone-1"]
    expected = {path: data for path, data in before.items() if not path.startswith("runs/gone-1/")}
    assert tree(tmp_path) == expected
    assert len(done["protected"]) == 5 + 3 + 2 + 1


async def test_prune_when_a_resumable_job_is_old_enough_then_it_goes(
    world: RestWorld, tmp_path: Path
) -> None:
    for number, state in enumerate(("failed", "cancelled", "paused"), 1):
        await add(world, tmp_path, f"demo-{number}", days=31, state=state)
    assert len((await prune(world, max_age_s=1, dry_run=True))["removed"]) == 3
    assert (await prune(world, max_age_s=1, resumable_s=40 * DAY))["removed"] == []


async def test_prune_when_a_job_was_deleted_or_lost_then_its_folder_counts_all_the_same(
    world: RestWorld, tmp_path: Path
) -> None:
    for number in (1, 2):
        await add(world, tmp_path, f"demo-{number}", days=9)
    await world.http.delete("/v1/jobs/demo-1")
    await world.redis.flushall()
    done = await prune(world, max_age_s=1)
    assert [folder["name"] for folder in done["removed"]] == ["demo-1", "demo-2"]


@pytest.mark.parametrize("query", [{}, {"dry_run": True}, {"max_jobs": 0}, {"max_age_s": 0}])
async def test_prune_when_no_limit_is_given_then_422(world: RestWorld, query: Any) -> None:
    assert (await world.http.delete("/v1/run-folders", params=query)).status_code == 422


@pytest.mark.parametrize("point", ["rename", "mkdir", "rmtree"])
async def test_removal_when_killed_at_any_point_then_the_job_is_there_whole_or_gone(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=9)
    document = (await world.http.get("/v1/jobs/demo-1")).content
    files = tree(run_dir)

    class Killed(BaseException):
        """The process ends here."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if point == "rmtree":
            patch.setattr(discard_module.shutil, "rmtree", die)
        else:
            real = getattr(Path, point)
            patch.setattr(
                Path,
                point,
                lambda path, *a, **k: die() if path == run_dir else real(path, *a, **k),
            )
        with pytest.raises(Killed):
            await world.app.state.parts.commands.delete("demo-1", files=True)

    # The next router.
    parts = world.app.state.parts
    await RunFolderKeeper(world.store, parts.importing, parts.pruning, world.settings).start()
    answer = await world.http.get("/v1/jobs/demo-1")
    if point == "rename":
        assert answer.content == document
        assert {k: v for k, v in tree(run_dir).items() if k in files} == files
    else:
        assert answer.status_code == 404
        assert list(run_dir.iterdir()) == [], "its name could be used again"
    bin_dir = world.settings.runs_dir / DISCARDED
    assert list(bin_dir.iterdir()) == []


async def test_removal_when_a_link_lies_where_folders_go_then_it_refuses_and_removes_nothing(
    world: RestWorld, tmp_path: Path
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=9)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (world.settings.runs_dir / DISCARDED).symlink_to(elsewhere)
    files = tree(run_dir)
    assert (await prune(world, max_age_s=1))["removed"] == []
    assert tree(run_dir) == files
    assert list(elsewhere.iterdir()) == []


async def test_removal_when_a_run_folder_holds_links_then_what_they_lead_to_stays(
    world: RestWorld, tmp_path: Path
) -> None:
    run_dir = await add(world, tmp_path, "demo-1", days=9)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"y" * 1_000_000)
    (run_dir / "link").symlink_to(outside)
    (run_dir / "policies").symlink_to(outside / "file")
    assert size_of(run_dir) < 100_000
    assert len((await prune(world, max_age_s=1))["removed"]) == 1
    assert (outside / "file").stat().st_size == 1_000_000


async def test_keeper_when_retention_is_set_then_it_prunes_by_itself_and_says_how_much(
    world: RestWorld, tmp_path: Path
) -> None:
    freed = metrics.ROUTER_FREED_BYTES._value.get()
    for number in (1, 2, 3):
        await add(world, tmp_path, f"demo-{number}", days=9 - number, size=100_000)
    parts = world.app.state.parts
    keeper = RunFolderKeeper(world.store, parts.importing, parts.pruning, world.settings)
    await keeper._look()
    assert await jobs(world) == {"demo-3"}
    assert metrics.ROUTER_FREED_BYTES._value.get() - freed >= 200_000
    left = metrics.ROUTER_RUN_BYTES._value.get()
    assert 100_000 <= left < 200_000
    assert json.loads((world.settings.runs_dir / "demo-3" / "job.json").read_text())
    await add(world, tmp_path, "demo-4", days=1)
    await keeper._look()
    assert await jobs(world) == {"demo-3", "demo-4"}, "it looked again too early"
