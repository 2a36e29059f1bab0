"""How many calls an env replica is sent at once."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from fleet_parts import SPEC

from troupe.api.router.v1 import router_pb2
from troupe.clients import EnvClient
from troupe.episodes.affinity import playing
from troupe.episodes.ports import Outcome, Start
from troupe.errors import (
    DeadlineError,
    ProgramDiedError,
    ProgramRunDiedError,
    ProgramTimeoutError,
    TroupeError,
)
from troupe.tasks.family import Split
from troupe.tasks.program_ends import end_of_error
from troupe_router.members.store import Member
from troupe_router.play.routing.fleet import Fleet
from troupe_router.play.routing.ports import FleetEnv


class Members:
    """Two env replicas."""

    async def of_job(self, job_id: str) -> list[Member]:
        return [
            Member(
                router_pb2.Replica(
                    replica_id=name,
                    kind=router_pb2.REPLICA_KIND_ENV,
                    address="127.0.0.1:1",
                    is_serving=True,
                ),
                job_id,
            )
            for name in ("a", "b")
        ]


class Counting(EnvClient):
    """Answers after a few turns of the loop, and notes how many asked at once."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", "plan_path")
        self.now = self.most = self.calls = 0

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        self.now += 1
        self.calls += 1
        self.most = max(self.most, self.now)
        for _ in range(3):
            await asyncio.sleep(0)
        self.now -= 1
        return Start(f"{split}/{index}", b"", {})


async def test_env_when_hundreds_ask_then_each_replica_is_sent_its_share_at_once() -> None:
    fleet = Fleet("demo-1", SPEC, Members())  # type: ignore[arg-type]
    await fleet.refresh()
    clients = [Counting() for _ in fleet.envs()]
    for connection, client in zip(fleet.envs(), clients, strict=True):
        await connection.client.close()
        connection.client = client
    env = FleetEnv(fleet, max_in_flight=4)
    starts = await asyncio.gather(
        *(env.reset(split="train", index=i, observe=(), timeout_s=60.0) for i in range(300))
    )
    assert [start.task_id for start in starts] == [f"train/{i}" for i in range(300)]
    assert [client.most for client in clients] == [4, 4]
    assert sum(client.calls for client in clients) == 300
    assert all(connection.num_in_flight == 0 for connection in fleet.envs())
    await fleet.close()


async def test_episode_when_it_goes_on_then_at_the_replica_that_answered_last() -> None:
    fleet = Fleet("demo-1", SPEC, Members())  # type: ignore[arg-type]
    await fleet.refresh()
    clients = [Counting() for _ in fleet.envs()]
    for connection, client in zip(fleet.envs(), clients, strict=True):
        await connection.client.close()
        connection.client = client
    env = FleetEnv(fleet)

    async def played(number: int) -> None:
        with playing(f"episode-{number}"):
            asked = [client.calls for client in clients]
            for _ in range(4):
                await env.reset(split="train", index=number, observe=(), timeout_s=60.0)
            now = [client.calls for client in clients]
            assert sorted(n - a for n, a in zip(now, asked, strict=True)) == [0, 4]

    for number in range(8):
        await played(number)
    await fleet.close()


class Failing(EnvClient):
    """Raises ``errors`` one after the other, and the last one from then on."""

    def __init__(self, *errors: TroupeError) -> None:
        super().__init__("127.0.0.1:1", "program")
        self.errors, self.calls = errors, 0

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        self.calls += 1
        raise self.errors[min(self.calls, len(self.errors)) - 1]


@pytest.mark.parametrize(
    ("error", "is_asked_once"), [(ProgramRunDiedError, True), (ProgramDiedError, False)]
)
async def test_program_when_it_died_then_it_ends_as_died_and_others_are_asked_if_they_may_answer(
    error: type[TroupeError], is_asked_once: bool
) -> None:
    fleet = Fleet("demo-1", SPEC, Members())  # type: ignore[arg-type]
    await fleet.refresh()
    clients = [Failing(error("the program's process died")) for _ in fleet.envs()]
    for connection, client in zip(fleet.envs(), clients, strict=True):
        await connection.client.close()
        connection.client = client
    with pytest.raises(error, match="process died") as raised:
        await FleetEnv(fleet).reset(split="train", index=0, observe=(), timeout_s=0.2)
    assert end_of_error(raised.value) == "died"
    assert (sum(client.calls for client in clients) == 1) is is_asked_once
    await fleet.close()


async def test_program_when_it_hangs_until_the_last_try_is_cut_short_then_ends_as_timeout() -> None:
    fleet = Fleet("demo-1", SPEC, Members())  # type: ignore[arg-type]
    await fleet.refresh()
    hangs, late = ProgramTimeoutError("the program hangs"), DeadlineError("Deadline Exceeded")
    for connection in fleet.envs():
        await connection.client.close()
        connection.client = Failing(hangs, late)
    with pytest.raises(ProgramTimeoutError, match=r"the program hangs \(tried again for 0.2 s\)"):
        await FleetEnv(fleet).reset(split="train", index=0, observe=(), timeout_s=0.2)
    await fleet.close()


class Slow(EnvClient):
    """Takes ``late_s`` without an answer each time, and notes for how long it was asked."""

    late_s = 0.05

    def __init__(self, asked_s: list[float]) -> None:
        super().__init__("127.0.0.1:1", "plan_path")
        self.asked_s = asked_s

    async def step(self, *, timeout_s: float, **_: Any) -> list[Outcome]:
        self.asked_s.append(timeout_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.late_s):
                await asyncio.Event().wait()
        raise DeadlineError("Step did not finish")


async def test_step_when_it_is_late_by_one_actions_time_then_is_not_asked_for_again() -> None:
    fleet = Fleet("demo-1", SPEC, Members())  # type: ignore[arg-type]
    await fleet.refresh()
    asked_s: list[float] = []
    for connection in fleet.envs():
        await connection.client.close()
        connection.client = Slow(asked_s)
    with pytest.raises(DeadlineError, match="did not finish"):
        await FleetEnv(fleet).step(
            state=b"", agent="a", actions=["x"] * 800, observe=(), timeout_s=800 * Slow.late_s
        )
    assert len(asked_s) == 1 and asked_s[0] > 39.0
    await fleet.close()
