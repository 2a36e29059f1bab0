"""One job in a router without its processes: real Valkey, a launcher that starts nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.ids import ticket_id
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.launch.launcher import Component, ComponentStatus, Launcher
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe.spec import JobSpec, parse_spec
from troupe_router.conduct.controller import ControllerParts, JobController
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import Member, MemberStore
from troupe_router.play.job_player import PlayOptions
from troupe_router.play.players import Players
from troupe_router.settings import RouterSettings

JOB = "demo-1"


def job_spec(**more: Any) -> JobSpec:
    """Two agents, one policy, nothing to train or evaluate unless ``more`` says so."""
    document = {
        "name": "demo",
        "steps": 0,
        "tasks_per_step": 3,
        "task": {"name": "plan_path", "params": {"size": 4, "max_actions": 3}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 2},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
        "eval": {"num_tasks": 0},
    }
    return parse_spec({**document, **more})


def tickets(round_id: str, count: int, step: int = 0) -> list[records.Ticket]:
    """Tickets of a training round."""
    return [
        records.Ticket(
            ticket_id=ticket_id(JOB, round_id, position),
            job_id=JOB,
            round_id=round_id,
            kind=records.ROUND_KIND_TRAIN,
            step=step,
            split="train",
            task_index=position,
        )
        for position in range(count)
    ]


class IdleLauncher:
    """Says that every component runs, and starts none."""

    outlives_caller = False

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        return [ComponentStatus(c.name, "running", 1, 0, None) for c in desired]

    async def stop(self, owner: str, *, grace_s: float) -> None:
        return None


@dataclass
class World:
    """The surroundings of one job's controller."""

    redis: Redis
    runs_dir: Path
    store: JobStore = field(init=False)
    members: MemberStore = field(init=False)
    ledger: StepLedger = field(init=False)
    disk: DiskSpace = field(init=False)
    memory: RedisMemory = field(default_factory=RedisMemory)
    launcher: Launcher = field(default_factory=IdleLauncher)

    def __post_init__(self) -> None:
        self.store = JobStore(self.redis)
        self.members = MemberStore(self.redis, ttl_s=60)
        self.ledger = StepLedger(self.redis, JOB)
        self.disk = DiskSpace(self.runs_dir, needed_bytes=0)

    async def add_job(self, spec: JobSpec, state: str) -> JobRecord:
        """A job in ``state`` ("launching" or "running"), as an earlier router left it."""
        run_dir = self.runs_dir / JOB
        run_dir.mkdir(parents=True)
        await self.store.create(JobRecord(JOB, spec, run_dir, "queued", created_at=1.0))
        record = await self.store.transition(JOB, "launching")
        return await self.store.transition(JOB, "running") if state == "running" else record

    async def add_members(self, *kinds: pb.ReplicaKind) -> None:
        """Replicas that are alive and that nobody can reach."""
        for kind in kinds:
            replica = pb.Replica(
                replica_id=f"{JOB}-{kind}", kind=kind, address="127.0.0.1:1", is_serving=True
            )
            await self.members.put(Member(replica, JOB, ("p",)))

    async def drive(self, record: JobRecord, *, within_s: float = 30.0) -> JobRecord:
        """Run the job's controller to its end, with players beside it; the record then."""
        playing = asyncio.create_task(self.players().run())
        try:
            async with asyncio.timeout(within_s):
                await JobController(self.parts(), record).run()
        finally:
            await cancel_all(playing)
        return await self.store.get(JOB)

    def parts(self) -> ControllerParts:
        """What a controller is made of."""
        settings = RouterSettings(runs_dir=self.runs_dir, commit="c", grace_s=1.0)
        return ControllerParts(
            settings,
            self.redis,
            self.store,
            self.members,
            self.launcher,
            "127.0.0.1:1",
            self.disk,
            memory=self.memory,
        )

    def players(self, **options: Any) -> Players:
        """What plays every running job, as one process has it."""
        return Players(self.redis, self.store, self.members, PlayOptions(**options))
