"""A job's deadline for a completion holds at the replica, whatever the replica's own setting."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest
from fake_sglang_world import FakeSglangWorld, request

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import (
    RolloutServiceStub,
    add_RolloutServiceServicer_to_server,
)
from troupe.candidates import GenerateRequest, Generation, ScoreRequest
from troupe.clients import codec
from troupe.clients.rollout import RolloutClient
from troupe.ids import prompt_digest
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.engines.rendering import LONG_CHARS
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message
from troupe_rollout.servicer import RolloutServicer
from troupe_rollout.settings import RolloutSettings
from troupe_rollout.staging import StagingArea

SETTING_S, JOB_S = 0.2, 30.0
OBSERVATION = (Message("user", "go"),)


class SlowEngine:
    """Takes longer than the replica's setting for a completion and for its scores."""

    name = "slow"

    def __init__(self) -> None:
        self.may_render_long = threading.Event()

    def render(self, policy: str, messages: Sequence[Message]) -> list[int]:
        if len(messages[0].text) > LONG_CHARS:
            assert self.may_render_long.wait(20 * SETTING_S), "nobody was answered meanwhile"
        return [1]

    def num_in_flight(self) -> int:
        return 0

    async def generate(self, asked: GenerateRequest[Sequence[int]]) -> Generation:
        await asyncio.sleep(3 * SETTING_S)
        return Generation([1], prompt_digest([1], []), [], 0, 0.0, 0)

    async def score_completions(self, *asked: Any) -> list[list[float]]:
        await asyncio.sleep(3 * SETTING_S)
        return [[-1.0]]


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine()


@pytest.fixture
async def address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: SlowEngine
) -> AsyncIterator[str]:
    monkeypatch.setattr("troupe_rollout.servicer.moving_s", lambda size_bytes: 0.0)
    staging = StagingArea(str(tmp_path), max_bytes=1, max_uploads=1, chunk_timeout_s=1.0)
    settings = RolloutSettings(call_timeout_s=SETTING_S)
    servicer = RolloutServicer(settings, cast("Any", engine), staging)
    servicer.open("m", "job")
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    add_RolloutServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_completions_when_slower_than_the_setting_then_have_the_time_that_the_job_gives(
    address: str,
) -> None:
    asked = GenerateRequest("p", 0, OBSERVATION, 1, SamplingSpec(max_new_tokens=8), seed=7)
    scored = ScoreRequest("p", 0, OBSERVATION, [1], [[2]])
    async with RolloutClient(address) as client:
        assert (await client.generate(asked, timeout_s=JOB_S)).prompt_token_ids == [1]
        assert await client.score_completions(scored, timeout_s=JOB_S) == [[-1.0]]


async def test_completions_when_the_client_sets_no_deadline_then_end_by_the_setting(
    address: str,
) -> None:
    wanted = GenerateRequest("p", 0, OBSERVATION, 1, SamplingSpec(max_new_tokens=8), seed=7)
    asked = codec.generate_request_to_proto(wanted)
    scored = pb.ScoreTokensRequest(policy="p", token_ids=[1])
    scored.completions.add(token_ids=[2])
    async with grpc.aio.insecure_channel(address) as channel:
        stub = RolloutServiceStub(channel)
        for call in (stub.Generate(asked), stub.ScoreTokens(scored)):
            with pytest.raises(grpc.aio.AioRpcError, match=r"did not end within 0\.2 s") as late:
                await asyncio.wait_for(call, JOB_S)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_completions_when_a_long_prompt_is_rendered_then_others_are_answered_meanwhile(
    address: str, engine: SlowEngine
) -> None:
    sampling = SamplingSpec(max_new_tokens=8)
    long = (Message("user", "x" * (LONG_CHARS + 1)),)
    async with RolloutClient(address) as client:
        asked = GenerateRequest("p", 0, long, 1, sampling, seed=7)
        slow = asyncio.create_task(client.generate(asked, timeout_s=JOB_S))
        await asyncio.sleep(0)  # it is sent first
        asked = GenerateRequest("p", 0, OBSERVATION, 1, sampling, seed=7)
        await client.generate(asked, timeout_s=JOB_S)
        engine.may_render_long.set()
        assert (await slow).prompt_token_ids == [1]


async def test_sglang_when_completions_take_longer_than_its_call_setting_then_they_are_awaited(
    world: FakeSglangWorld, adapter: StagedWeights
) -> None:
    engine = await world.started(call_timeout_s=0.4)
    await engine.stage(adapter)
    await engine.activate("p", 1)
    (world.folder / "slow-on").write_text("/generate")
    assert len((await engine.generate(request(1))).candidates) == 2
    assert len(await engine.score("p", 1, [1, 2, 3])) == 2
