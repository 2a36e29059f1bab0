"""The env service's cache of families: whom it closes, and when."""

import asyncio
import threading
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from troupe.api.env.v1 import env_pb2 as pb
from troupe.tasks.family import Task, Transition
from troupe_env.families import Families
from troupe_env.judging_pool import JudgingPool, judged
from troupe_env.servicer import EnvServicer
from troupe_env.settings import EnvSettings

WAIT_S = 20.0


class NumberParams(BaseModel):
    number: int = 0
    """Tells families apart."""


class Closable:
    """A family whose environment says when it is made, stepped and closed."""

    name: ClassVar[str] = "closable"
    agents: ClassVar[tuple[str, ...]] = ("a",)
    Params: ClassVar[type[BaseModel]] = NumberParams
    made: ClassVar[list[Any]] = []
    closed: ClassVar[list[Any]] = []
    makers: ClassVar[threading.Barrier] = threading.Barrier(1)
    stepping: ClassVar[threading.Event] = threading.Event()
    goes_on: ClassVar[threading.Event] = threading.Event()

    def __init__(self, params: BaseModel) -> None:
        pass

    def taskset(self) -> Any:
        return self

    def environment(self) -> Any:
        self.makers.wait(WAIT_S)
        self.made.append(self)
        return self

    def reset(self, task: Task) -> bytes:
        return b"s"

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        self.stepping.set()
        assert self.goes_on.wait(WAIT_S)
        return Transition(state, 0.0, {}, False, False)

    def close(self) -> None:
        self.closed.append(self)


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> str:
    fresh = {"made": [], "closed": [], "stepping": threading.Event(), "goes_on": threading.Event()}
    for name, value in fresh.items():
        monkeypatch.setattr(Closable, name, value)
    return f"{__name__}:Closable"


def in_threads(*works: Any) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def test_family_when_two_threads_construct_it_then_the_second_one_is_closed(kind, monkeypatch):
    monkeypatch.setattr(Closable, "makers", threading.Barrier(2))
    families, got = Families(2), []
    for thread in in_threads(*[lambda: got.append(families.get(kind, "{}"))] * 2):
        thread.join(WAIT_S)
    assert got[0] is got[1]
    assert len(Closable.made) == 2
    assert Closable.closed == [env for env in Closable.made if env is not got[0].environment]


def test_family_when_evicted_during_a_step_then_is_closed_after_it(kind):
    families = Families(1)
    loaded = families.get(kind, '{"number": 1}')
    [step] = in_threads(lambda: judged(loaded, b"s", b"", "a", ["x"], []))
    assert Closable.stepping.wait(WAIT_S)
    families.get(kind, '{"number": 2}')
    closed_meanwhile = [*Closable.closed]
    Closable.goes_on.set()
    step.join(WAIT_S)
    assert closed_meanwhile == []
    assert Closable.closed == [loaded.environment]


def test_family_when_evicted_while_idle_then_is_closed_at_once(kind):
    families = Families(1)
    loaded = families.get(kind, '{"number": 1}')
    families.get(kind, '{"number": 2}')
    assert Closable.closed == [loaded.environment]


class Call:
    """What of gRPC's context a call without a deadline asks."""

    def time_remaining(self) -> float | None:
        return None


async def test_family_when_evicted_while_a_step_waits_for_a_thread_then_is_closed_after_it(kind):
    settings, families = EnvSettings(threads=1), Families(1)
    pool, is_free = JudgingPool(settings), threading.Event()
    loaded = families.get(kind, '{"number": 1}')
    ref = pb.EnvironmentRef(name=kind, params_json='{"number": 1}')
    request = pb.StepRequest(environment=ref, state=b"s", agent="a", actions=["x"])
    blocker = asyncio.create_task(pool.run("Reset", lambda: is_free.wait(WAIT_S), WAIT_S))
    step = asyncio.create_task(EnvServicer(settings, families, pool).Step(request, Call()))
    async with asyncio.timeout(WAIT_S):
        while pool.in_flight.num < 2:  # noqa: ASYNC110 - a count, not an event
            await asyncio.sleep(0)
    families.get(kind, '{"number": 2}')
    closed_meanwhile = [*Closable.closed]
    Closable.goes_on.set()
    is_free.set()
    await asyncio.gather(blocker, step)
    pool.close()
    assert closed_meanwhile == []
    assert Closable.closed == [loaded.environment]
