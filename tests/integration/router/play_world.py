"""A running job with a real env and scripted replicas, and the processes that play its tickets."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
from fleet_world import until
from job_world import JOB, World, job_spec, tickets
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import (
    RolloutServiceServicer,
    add_RolloutServiceServicer_to_server,
)
from troupe.api.router.v1 import router_pb2
from troupe.ids import prompt_digest
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import RoundState
from troupe.spec import JobSpec
from troupe_env.app import EnvApp
from troupe_env.settings import EnvSettings
from troupe_router.members.store import Member

ROUND = "train-00000"
Serve = Callable[[Callable[[grpc.aio.Server], None]], Awaitable[str]]


@dataclass
class SeededRollout(RolloutServiceServicer):
    """Holds version 0; what it samples follows from the prompt and the seed alone."""

    answer_s: float = 0.0
    calls: int = 0

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        self.calls += 1
        await asyncio.sleep(self.answer_s)
        prompt = list("".join(m.content for m in request.chat.messages).encode())
        rng = Random(f"{request.sampling.seed}/{prompt}")
        texts = [
            f"simulate {_moves(rng)} plan {_moves(rng)}" for _ in range(request.num_candidates)
        ]
        return pb.GenerateResponse(
            prompt=records.Prompt(token_ids=prompt, digest=prompt_digest(prompt)),
            candidates=[
                pb.GeneratedCandidate(
                    token_ids=list(text.encode()),
                    logprobs=[-rng.random() for _ in text],
                    text=text,
                    finish_reason=records.FINISH_REASON_STOP,
                )
                for text in texts
            ],
            policy_version=0,
            engine_s=self.answer_s,
        )

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(policies=[pb.PolicyStatus(policy="p", loaded_versions=[0])])


def _moves(rng: Random) -> str:
    return " ".join(rng.choices("UDLR", k=3))


@dataclass
class PlayWorld(World):
    """The job, its replicas and a round of tickets."""

    rollout: SeededRollout = None  # type: ignore[assignment]
    num_tickets: int = 12

    async def start(self, serve: Serve, *, in_flight: int = 3, steps: int = 1) -> JobSpec:
        """The job runs and its replicas serve; no round is open yet."""
        self.rollout = SeededRollout()
        spec = job_spec(steps=steps, limits={"episodes_in_flight": in_flight})
        await self.add_job(spec, "running")
        env = await serve(EnvApp(EnvSettings()).register)
        rollout = await serve(
            lambda server: add_RolloutServiceServicer_to_server(self.rollout, server)
        )
        for kind, address in (
            (router_pb2.REPLICA_KIND_ENV, env),
            (router_pb2.REPLICA_KIND_ROLLOUT, rollout),
        ):
            replica = router_pb2.Replica(
                replica_id=f"{JOB}-{kind}", kind=kind, address=address, is_serving=True, seen_at=1.0
            )
            if kind == router_pb2.REPLICA_KIND_ROLLOUT:
                replica.policies.add(policy="p", loaded_versions=[0])
            await self.members.put(Member(replica, JOB, ("p",)))
        return spec

    async def open_round(self, round_id: str = ROUND, step: int = 0) -> None:
        opened = tickets(round_id, self.num_tickets, step)
        for ticket in opened:
            ticket.policy_versions["p"] = 0
        await self.ledger.open_round(round_id, records.ROUND_KIND_TRAIN, step, opened)

    async def state(self, round_id: str = ROUND) -> RoundState:
        state = await self.ledger.round(round_id)
        assert state is not None
        return state

    async def played(self, round_id: str = ROUND, *, within_s: float = 45.0) -> RoundState:
        """The round once its last ticket has ended."""
        async with asyncio.timeout(within_s):
            while not (await self.state(round_id)).is_complete:
                await self.ledger.wait_change(0.5)
        return await self.state(round_id)

    async def pending(self) -> dict[str, int]:
        """Tickets at work, by the name of the process that holds them."""
        try:
            consumers: Any = await self.redis.xinfo_consumers(keys.tickets(JOB), keys.WORKERS_GROUP)
        except ResponseError:  # nobody has read yet
            return {}
        held: dict[str, int] = {}
        for consumer in consumers:
            name = consumer["name"].decode().rpartition("-")[0]
            held[name] = held.get(name, 0) + int(consumer["pending"])
        return held

    async def released(self) -> None:
        """Until nobody works on a ticket: those that were begun were given back."""
        is_held = True
        while is_held:
            pending: Any = await self.redis.xpending_range(
                keys.tickets(JOB), keys.WORKERS_GROUP, "-", "+", 100
            )
            is_held = any(entry["time_since_delivered"] < 60_000 for entry in pending)
            await asyncio.sleep(0.02)

    async def groups(self) -> list[bytes]:
        """Every group that was stored, by id; maps in an order that no process chooses."""
        entries: Any = await self.redis.xrange(keys.groups(JOB, "p"))
        stored = [records.Group.FromString(fields[b"p"]) for _, fields in entries]
        stored.sort(key=lambda group: group.group_id)
        return [group.SerializeToString(deterministic=True) for group in stored]


@dataclass
class PlayProcess:
    """``python -m troupe_router.play``."""

    name: str
    admin: str
    grpc: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @classmethod
    def start(
        cls, name: str, redis_url: str, folder: Path, free_port: Callable[[], int], **more: str
    ) -> "PlayProcess":
        admin, address = (f"127.0.0.1:{free_port()}" for _ in range(2))
        settings = {
            "REPLICA_ID": name,
            "REDIS_URL": redis_url,
            "ADMIN_ADDRESS": admin,
            "GRPC_ADDRESS": address,
            "CLAIM_IDLE_S": "1",
            **more,
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
        environment = {f"TROUPE_PLAY_{key}": value for key, value in settings.items()}
        log = folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "troupe_router.play"],
                env={**inherited, **environment, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=file,
            )
        return cls(name, admin, address, process, log)

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)


async def until_pending(world: PlayWorld, *names: str) -> None:
    """Until each of the processes holds a ticket."""
    held: dict[str, int] = {}

    async def look() -> None:
        nonlocal held
        while not all(held.get(name) for name in names):
            held = await world.pending()
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    await until(looking.done, within_s=45)
    await looking


async def fresh(redis: Redis, folder: Path, serve: Serve, **options: int) -> PlayWorld:
    """A world on an empty database."""
    await redis.flushall()
    world = PlayWorld(redis, folder)
    await world.start(serve, **options)
    return world
