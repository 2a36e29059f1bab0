"""The trainer's waits count the time in which a router conducts the job."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.api.router.v1.router_pb2 import Replica, ReplicaPolicy
from troupe.errors import UnavailableError
from troupe.runtime.streams.conducting import Conducting
from troupe.spec import parse_spec
from troupe_trainer.checkpoint.canary import Canary
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.learn.patience import Patience, nobody_says
from troupe_trainer.publish.publisher import POLL_S, Publisher

LIMIT_S = 300.0
SPEC = {
    "name": "t",
    "steps": 1,
    "task": {"name": "plan_path"},
    "workflow": {"order": ["tool", "planner"]},
    "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
    "policies": {"p": {"model": "m"}},
    "limits": {"startup_timeout_s": POLL_S / 2},
}
SERVED = WeightsManifest(policy="p", policy_version=3, kind="lora", tensor_digest="d")


@dataclass
class Time:
    """A clock, and a conductor that speaks now and counts from ``counts_from``."""

    now: float = 1000.0
    counts_from: float = 0.0
    spoke_at: float | None = None

    async def ask(self) -> Conducting:
        spoke_at = self.now if self.spoke_at is None else self.spoke_at
        return Conducting(spoke_at - self.counts_from, self.now - spoke_at)

    def patience(self) -> Patience:
        return Patience(LIMIT_S, self.ask, clock=lambda: self.now)


async def test_wait_when_a_router_conducts_the_job_then_is_over_after_its_limit() -> None:
    patience = (time := Time()).patience()
    time.now += LIMIT_S - 1
    assert not await patience.is_over()
    time.now += 2
    assert await patience.is_over()


async def test_wait_when_a_router_says_nothing_of_its_time_then_is_over_after_its_limit() -> None:
    time = Time()
    patience = Patience(LIMIT_S, nobody_says, clock=lambda: time.now)
    time.now += LIMIT_S + 1
    assert await patience.is_over()


async def test_wait_when_the_router_was_away_for_twice_the_limit_then_begins_anew() -> None:
    patience = (time := Time()).patience()
    time.spoke_at = time.now
    time.now += 2 * LIMIT_S
    assert not await patience.is_over()
    time.counts_from, time.spoke_at = time.now, None  # it is back
    assert not await patience.is_over()
    time.now += LIMIT_S + 1
    assert await patience.is_over()


async def test_wait_when_the_router_goes_away_just_before_its_limit_then_is_not_over() -> None:
    patience = (time := Time()).patience()
    time.now += LIMIT_S - 1
    time.spoke_at = time.now
    time.now += 5
    assert not await patience.is_over()
    time.spoke_at = None  # it was away for seconds, which is no gap
    assert await patience.is_over()


async def test_wait_when_a_part_is_left_out_then_is_longer_by_it() -> None:
    patience = (time := Time()).patience()
    time.now += LIMIT_S
    patience.leave_out(10.0)
    time.now += 9
    assert not await patience.is_over()
    time.now += 2
    assert await patience.is_over()


@dataclass
class Router:
    """Answers from the ``num_away``-th question on; its replica holds the version already."""

    num_away: int
    num_asked: int = 0

    async def list_replicas(self, job_id: str, kind: int) -> list[Replica]:
        self.num_asked += 1
        if self.num_asked <= self.num_away:
            raise UnavailableError("the router is away")
        policy = ReplicaPolicy(policy="p", active_version=3, loaded_versions=[3], tensor_digest="d")
        return [Replica(replica_id="r", address="a", is_serving=True, policies=[policy])]


@dataclass
class Activated:
    """A replica's client."""

    versions: list[int] = field(default_factory=list[int])

    async def activate(self, policy: str, version: int, **_: Any) -> None:
        self.versions.append(version)


async def test_push_when_the_router_is_away_for_twice_its_limit_then_goes_on() -> None:
    router: Any = Router(num_away=2)
    client: Any = Activated()
    publisher = Publisher("job", parse_spec(SPEC), router, connect=lambda address: client)
    await publisher.publish(Export(SERVED, Path("unused"), Canary([1, 2]), []))
    assert client.versions == [3]
