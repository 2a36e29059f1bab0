"""A job's reward function in the env service, over real gRPC."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from troupe.clients import EnvClient
from troupe.errors import InvalidArgumentError, RewardFailedError, StateChangedError
from troupe.rewards.reward import JudgedTransition
from troupe.spec.reward import RewardSpec
from troupe.tasks.family import Task
from troupe_env.app import EnvApp
from troupe_env.settings import EnvSettings

Serve = Callable[..., Awaitable[str]]


def task_and_words(transition: JudgedTransition, task: Task, *, factor: int = 1) -> float:
    if transition.action == "boom":
        raise ZeroDivisionError("a bug in the reward")
    if transition.action == "nan":
        return math.nan
    return factor * (100 * task.index + len(transition.action.split()))


@pytest.fixture
async def serve(grpc_servers: Any) -> AsyncIterator[Serve]:
    apps: list[EnvApp] = []

    async def start(**settings: Any) -> str:
        app = EnvApp(EnvSettings(**settings))
        apps.append(app)
        return await grpc_servers(app.register)

    yield start
    for app in apps:
        await app.close()


def client(address: str, **params: Any) -> EnvClient:
    reward = RewardSpec(kind=f"{__name__}:task_and_words", params=params, name="words")
    return EnvClient(address, "plan_path", {"size": 6}, reward=reward, retry_for_s=0)


async def step(env: EnvClient, state: bytes, *actions: str) -> list[Any]:
    return await env.step(state=state, agent="tool", actions=actions, observe=[], timeout_s=20)


async def test_step_when_the_job_has_a_reward_then_each_action_has_its_term(serve: Serve) -> None:
    async with client(await serve(), factor=2) as env:
        start = await env.reset(split="test", index=5, observe=["tool"], timeout_s=20)
        outcomes = await step(env, start.state, "up", "up up", "")
        again = await step(env, outcomes[0].state, "left")
    assert [o.local_rewards["words"] for o in outcomes] == [1002.0, 1004.0, 1000.0]
    assert again[0].local_rewards["words"] == 1002.0
    assert "format" in outcomes[0].local_rewards


async def test_step_when_repeated_on_another_replica_then_gives_the_same_bytes(
    serve: Serve,
) -> None:
    async with client(await serve()) as one, client(await serve()) as other:
        start = await one.reset(split="train", index=2, observe=[], timeout_s=20)
        first, second = await asyncio.gather(
            step(one, start.state, "up", "a b"), step(other, start.state, "up", "a b")
        )
    assert first == second
    assert [o.state.seal for o in first] == [o.state.seal for o in second]


@pytest.mark.parametrize(
    ("action", "words"), [("boom", "ZeroDivisionError: a bug in the reward"), ("nan", "gave nan")]
)
async def test_step_when_the_function_fails_then_an_error_names_it_and_nothing_is_scored(
    serve: Serve, action: str, words: str
) -> None:
    async with client(await serve()) as env:
        start = await env.reset(split="train", index=2, observe=[], timeout_s=20)
        with pytest.raises(RewardFailedError) as caught:
            await step(env, start.state, "up", action)
        assert len(await step(env, start.state, "up")) == 1
    for part in (words, f"{__name__}:task_and_words", "plan_path/train/2", "'tool'"):
        assert part in caught.value.message


async def test_reset_when_the_function_is_not_there_then_invalid_argument(serve: Serve) -> None:
    reward = RewardSpec(kind=f"{__name__}:absent")
    async with EnvClient(await serve(), "plan_path", {}, reward=reward, retry_for_s=0) as env:
        with pytest.raises(InvalidArgumentError, match="absent"):
            await env.reset(split="train", index=0, observe=[], timeout_s=20)


async def test_step_when_the_state_is_of_another_reward_then_refused(serve: Serve) -> None:
    address = await serve()
    async with client(address) as env, client(address, factor=3) as other:
        start = await env.reset(split="train", index=2, observe=[], timeout_s=20)
        with pytest.raises(StateChangedError):
            await step(other, start.state, "up")
