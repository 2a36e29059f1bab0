"""A job's own limits decide how long its task's code may take; the service's setting does not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest

from troupe.api.env.v1 import env_pb2 as pb
from troupe.api.env.v1.env_pb2_grpc import EnvServiceServicer, EnvServiceStub
from troupe.clients import EnvClient
from troupe.errors import DeadlineError
from troupe.tasks.simple import SimpleTask
from troupe_env.app import EnvApp
from troupe_env.bundles.forwarding import ForwardingServicer
from troupe_env.bundles.processes import BundleProcesses
from troupe_env.settings import EnvSettings

SETTING_S, JOB_S = 0.2, 30.0
NAME = f"{__name__}:Slow"
never = threading.Event()


class Slow(SimpleTask):
    """Each call of its code takes longer than the service's setting; "hang" never ends in time."""

    name = "slow_judge"
    agents = ("a",)

    def draw(self, rng: Any) -> dict[str, Any]:
        return {"q": rng.random()}

    def observe(self, state: Any, agent: str) -> str:
        never.wait(2 * SETTING_S)
        return "go"

    def step(self, state: Any, agent: str, action: str) -> Any:
        never.wait(JOB_S if action == "hang" else SETTING_S)
        return self.transition(state, 1.0)


@pytest.fixture
async def address(grpc_servers: Callable[..., Awaitable[str]]) -> AsyncIterator[str]:
    app = EnvApp(EnvSettings(call_timeout_s=SETTING_S, threads=2))
    yield await grpc_servers(app.register)
    never.set()
    await app.close()
    never.clear()


async def test_task_when_slower_than_the_setting_then_has_the_time_that_its_job_gives(
    address: str,
) -> None:
    async with EnvClient(address, NAME, {}, retry_for_s=0) as client:
        start = await client.reset(split="train", index=0, observe=["a"], timeout_s=JOB_S)
        outcomes = await client.step(
            state=start.state, agent="a", actions=list("123"), observe=["a"], timeout_s=JOB_S
        )
        assert [outcome.team_reward for outcome in outcomes] == [1.0] * 3
        assert await client.observations(state=start.state, observe=["a"], timeout_s=JOB_S)


async def test_task_when_it_hangs_then_ends_by_its_jobs_deadline_which_the_error_names(
    address: str,
) -> None:
    async with EnvClient(address, NAME, {}, retry_for_s=0) as client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=JOB_S)
        with pytest.raises(DeadlineError, match=r"limits\.env_timeout_s.*TROUPE_ENV_THREADS"):
            await client.step(
                state=start.state, agent="a", actions=["hang"], observe=[], timeout_s=1.0
            )


async def test_call_when_its_client_sets_no_deadline_then_has_that_of_the_setting(
    address: str,
) -> None:
    request = pb.ResetRequest(environment=pb.EnvironmentRef(name=NAME), observe_agents=["a"])
    request.environment.params_json = "{}"
    request.task.split = "train"
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="TROUPE_ENV_CALL_TIMEOUT_S") as late:
            await asyncio.wait_for(EnvServiceStub(channel).Reset(request), JOB_S)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(("left_s", "given_s"), [(JOB_S, JOB_S), (None, SETTING_S)])
async def test_bundle_when_called_then_has_the_callers_time_and_without_one_the_settings(
    left_s: float | None, given_s: float
) -> None:
    given: list[float] = []

    async def call(what: str, ask: Any, timeout_s: float) -> pb.ResetResponse:
        given.append(timeout_s)
        return pb.ResetResponse()

    async def fetch(digest: str) -> Any:
        raise AssertionError("it runs already")

    settings = EnvSettings(call_timeout_s=SETTING_S)
    processes = BundleProcesses(settings, fetch)
    processes.running["d"] = cast("Any", SimpleNamespace(is_alive=True, call=call))
    request = pb.ResetRequest(environment=pb.EnvironmentRef(bundle_digest="d"))
    context = cast("Any", SimpleNamespace(time_remaining=lambda: left_s))
    await ForwardingServicer(settings, EnvServiceServicer(), processes).Reset(request, context)
    assert given == [pytest.approx(given_s, abs=0.5)]
