"""Dry runs on an env service: real gRPC and Valkey; and where an env service gets its bundle."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import grpc.aio
import pytest
from redis.asyncio import Redis
from rest_world import spec_document

from troupe.api.env.v1.env_pb2_grpc import add_EnvServiceServicer_to_server
from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ENV, Replica
from troupe.bundles import bundle_of
from troupe.errors import DeadlineError, NotFoundError, UnavailableError
from troupe.runtime.launch.launcher import Component, ComponentStatus
from troupe.spec import SpecInvalidError, parse_spec
from troupe_env.families import Families
from troupe_env.judging_pool import JudgingPool
from troupe_env.servicer import EnvServicer
from troupe_env.settings import EnvSettings
from troupe_router.conduct.dry_runs import DryRuns
from troupe_router.jobs.bundles import BundleStore
from troupe_router.jobs.job_bundles import JobBundles
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.store import Member, MemberStore
from troupe_router.settings import RouterSettings


class NoteLauncher:
    """A launcher that starts nothing and notes whom it stops."""

    outlives_caller = False

    def __init__(self, state: Literal["failed", "waiting"] = "failed") -> None:
        self.stopped: list[str] = []
        self._state: Literal["failed", "waiting"] = state

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        return [ComponentStatus(c.name, self._state, None, 0, 3, "no such image") for c in desired]

    async def stop(self, owner: str, *, grace_s: float) -> None:
        self.stopped.append(owner)


async def test_dry_run_when_an_env_service_stands_by_then_it_plays(
    redis: Redis, tmp_path: Path, grpc_servers: Callable[..., Awaitable[str]]
) -> None:
    env = EnvServicer(EnvSettings(), Families(2), JudgingPool(EnvSettings()))

    def add(server: grpc.aio.Server) -> None:
        add_EnvServiceServicer_to_server(env, server)

    members = MemberStore(redis, ttl_s=30)
    runs = DryRuns(RouterSettings(runs_dir=tmp_path), members, None, "127.0.0.1:1")
    spec = parse_spec(spec_document(tmp_path))
    with pytest.raises(UnavailableError, match="no env service is up"):
        await runs.play(spec, 2)
    address = await grpc_servers(add)
    replica = Replica(replica_id="e", kind=REPLICA_KIND_ENV, address=address, is_serving=True)
    await members.put(Member(replica))
    episodes = await runs.play(spec, 2)
    assert [e["task_id"] for e in episodes] == ["plan_path/train/0", "plan_path/train/1"]
    assert len(episodes[0]["groups"][0]["candidates"]) == 2


async def test_dry_run_when_its_worker_fails_then_says_why_and_leaves_nothing(
    redis: Redis, tmp_path: Path
) -> None:
    launcher = NoteLauncher()
    settings = RouterSettings(runs_dir=tmp_path / "runs")
    runs = DryRuns(settings, MemberStore(redis, ttl_s=5), launcher, "127.0.0.1:1")
    with pytest.raises(UnavailableError, match="no such image"):
        await runs.play(parse_spec(spec_document(tmp_path)), 1)
    assert len(launcher.stopped) == 1


async def test_dry_run_when_its_spec_lets_a_worker_start_for_days_then_the_router_does_not(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troupe_router.conduct.dry_runs.START_S", 0.2)
    launcher = NoteLauncher("waiting")
    settings = RouterSettings(runs_dir=tmp_path / "runs")
    runs = DryRuns(settings, MemberStore(redis, ttl_s=5), launcher, "127.0.0.1:1")
    spec = parse_spec(spec_document(tmp_path, limits={"startup_timeout_s": 1e6}))
    async with asyncio.timeout(10):
        with pytest.raises(DeadlineError, match=r"was not up in 0\.2 s"):
            await runs.play(spec, 1)
    assert len(launcher.stopped) == 1


async def test_workers_when_an_earlier_life_left_them_then_are_ended_and_no_job_is(
    redis: Redis, tmp_path: Path
) -> None:
    for name in ("dryrun-0a1b2c3d", "dryrun-12345678", "dryrun-1"):
        (tmp_path / name / "procs").mkdir(parents=True)
    (tmp_path / "dryrun-12345678" / "spec.json").write_text("{}")
    launcher = NoteLauncher()
    members = MemberStore(redis, ttl_s=5)
    await DryRuns(RouterSettings(runs_dir=tmp_path), members, launcher, "127.0.0.1:1").sweep()
    assert launcher.stopped == ["dryrun-0a1b2c3d"]
    assert not (tmp_path / "dryrun-0a1b2c3d").exists()
    assert (tmp_path / "dryrun-12345678").exists()


async def test_dry_run_when_the_model_is_not_here_then_is_checked_but_for_the_model(
    redis: Redis, tmp_path: Path
) -> None:
    commands = JobCommands(RouterSettings(runs_dir=tmp_path / "runs"), redis, JobStore(redis))
    document = spec_document(tmp_path, policies={"p": {"model": "models/nowhere"}})
    [issue] = await commands.check_playable(parse_spec(document))
    assert issue.pointer == "/policies/p/model"
    with pytest.raises(SpecInvalidError, match="no folder 'models/nowhere'"):
        await commands.submit(b"1", parse_spec(document), key=None)
    strange = document | {"task": {"name": "plan_path", "params": {"size": "wide"}}}
    with pytest.raises(SpecInvalidError, match="/task/params/size"):
        await commands.check_playable(parse_spec(strange))


async def test_bundle_when_the_upload_is_gone_then_env_services_get_the_runs_copy(
    redis: Redis, tmp_path: Path
) -> None:
    settings = RouterSettings(runs_dir=tmp_path / "runs")
    store = JobStore(redis)
    commands, uploads = JobCommands(settings, redis, store), BundleStore(settings)
    one = bundle_of({"my_task.py": b"raise SystemExit\n"})
    facts = {"agents": ["tool", "planner"]}
    document = spec_document(
        tmp_path, task={"name": "my_task:Mine"}, bundle={"digest": one.digest, "task": facts}
    )
    spec = parse_spec(document)
    with pytest.raises(SpecInvalidError, match="upload it first"):
        await commands.submit(b"1", spec, key=None)
    uploads.put(one.digest, one.archive, owner="ann")
    accepted = await commands.submit(b"1", spec, key=None)
    uploads.delete(one.digest)
    jobs = JobBundles(uploads, store)
    assert await jobs.archive(one.digest) == one.archive
    (accepted.record.run_dir / "bundle.tar").write_bytes(b"damaged")
    with pytest.raises(NotFoundError):
        await jobs.archive(one.digest)
