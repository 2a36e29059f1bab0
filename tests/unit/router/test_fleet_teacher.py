"""How episodes reach the replicas that serve a teacher, and who is asked when one fails."""

import asyncio
from collections.abc import Sequence

import pytest
from fleet_parts import SPEC

from troupe.api.router.v1 import router_pb2
from troupe.candidates import ScoreRequest
from troupe.clients import RolloutClient
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    TroupeError,
    UnavailableError,
    VersionNotLoadedError,
)
from troupe.tasks.family import Message
from troupe_router.members.store import Member
from troupe_router.play.routing.fleet import Fleet
from troupe_router.play.routing.teachers import FleetTeacher

REQUEST = ScoreRequest("p-teacher", 0, (Message("user", "go"),), [5, 9], [[1, 2], [3]])


class Members:
    """Three rollout replicas: one of the policy, two of its teacher."""

    def __init__(self, teachers: Sequence[str] = ("b", "c")) -> None:
        self._teachers = teachers

    async def of_job(self, job_id: str) -> list[Member]:
        served = {"a": "p", **dict.fromkeys(self._teachers, "p-teacher")}
        return [
            Member(
                router_pb2.Replica(
                    replica_id=name,
                    kind=router_pb2.REPLICA_KIND_ROLLOUT,
                    address="127.0.0.1:1",
                    is_serving=True,
                    policies=[router_pb2.ReplicaPolicy(policy=policy, loaded_versions=[0])],
                    seen_at=1.0,
                ),
                job_id,
            )
            for name, policy in served.items()
        ]


class Teacher(RolloutClient):
    """A token is worth its number; raises ``error`` in the first ``failing`` calls."""

    def __init__(self, error: TroupeError | None = None, failing: int = 0) -> None:
        super().__init__("127.0.0.1:1")
        self.error, self.failing = error, failing
        self.calls = self.now = self.most = 0

    async def score_completions(
        self, request: ScoreRequest, *, timeout_s: float
    ) -> list[Sequence[float]]:
        self.calls += 1
        if self.error is not None and self.calls <= self.failing:
            raise self.error
        self.now += len(request.completions)
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= len(request.completions)
        return [[-float(token) for token in ids] for ids in request.completions]


async def fleet_of(clients: dict[str, Teacher], members: Members | None = None) -> Fleet:
    fleet = Fleet("demo-1", SPEC, members or Members())  # type: ignore[arg-type]
    await fleet.refresh()
    for connection in fleet.rollouts():
        await connection.client.close()
        connection.client = clients.get(connection.replica_id, Teacher())
    return fleet


async def test_teacher_when_asked_then_only_its_replicas_answer_and_share_the_load() -> None:
    clients = {name: Teacher() for name in "abc"}
    fleet = await fleet_of(clients)
    teacher = FleetTeacher(fleet, max_in_flight=4)
    scores = await asyncio.gather(*(teacher.score(REQUEST, timeout_s=30.0) for _ in range(40)))
    assert scores == [[[-1.0, -2.0], [-3.0]]] * 40
    assert clients["a"].calls == 0
    assert clients["b"].calls + clients["c"].calls == 40
    assert max(clients["b"].most, clients["c"].most) <= 4
    assert all(connection.num_in_flight == 0 for connection in fleet.rollouts())
    await fleet.close()


@pytest.mark.parametrize("error", [UnavailableError("gone"), VersionNotLoadedError("it starts")])
async def test_teacher_when_a_replica_fails_then_another_answers(error: TroupeError) -> None:
    clients = {"b": Teacher(error, failing=99), "c": Teacher()}
    fleet = await fleet_of(clients)
    teacher = FleetTeacher(fleet)
    for _ in range(8):
        assert await teacher.score(REQUEST, timeout_s=30.0) == [[-1.0, -2.0], [-3.0]]
    assert clients["c"].calls == 8
    await fleet.close()


async def test_teacher_when_none_serves_it_then_the_error_names_it_and_is_retryable() -> None:
    fleet = await fleet_of({}, Members(teachers=()))
    with pytest.raises(UnavailableError, match="no rollout replica serves the teacher 'p-teacher'"):
        await FleetTeacher(fleet).score(REQUEST, timeout_s=0.1)
    await fleet.close()


async def test_teacher_when_its_replicas_are_too_slow_then_the_error_says_so() -> None:
    clients = {name: Teacher(DeadlineError("no answer"), failing=99) for name in "bc"}
    fleet = await fleet_of(clients)
    with pytest.raises(DeadlineError, match="the last error was: no answer"):
        await FleetTeacher(fleet).score(REQUEST, timeout_s=0.1)
    await fleet.close()


async def test_teacher_when_the_tokens_are_not_its_own_then_it_is_asked_once() -> None:
    error = InvalidArgumentError("Token id 70 is outside the vocabulary of 'm'.")
    clients = {name: Teacher(error, failing=99) for name in "bc"}
    fleet = await fleet_of(clients)
    with pytest.raises(InvalidArgumentError, match="Token id 70"):
        await FleetTeacher(fleet).score(REQUEST, timeout_s=30.0)
    assert sum(client.calls for client in clients.values()) == 1
    await fleet.close()
