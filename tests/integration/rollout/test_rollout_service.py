"""RolloutService over a real channel: generation, weights, and every way an upload goes wrong."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import REGISTRY

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import RolloutServiceStub
from troupe.candidates import GenerateRequest, ScoreRequest
from troupe.clients.channel import CORE_FAILED
from troupe.errors import (
    InvalidArgumentError,
    NotFoundError,
    PromptTooLongError,
    UnavailableError,
    VersionNotLoadedError,
    WeightsRejectedError,
)
from troupe.ids import prompt_digest
from troupe.runtime.weights import build_manifest, digest_of_sums, iter_chunks, sums_in
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message

Rollout = Any
"""See the fixture ``rollout``."""

OBSERVATION = (Message("system", "w1 w2"), Message("user", "w3"))


def manifest_for(path: Path, version: int = 0) -> WeightsManifest:
    return build_manifest(path, policy="shared", policy_version=version, kind="full")


async def publish(rollout: Rollout, path: Path, version: int = 0) -> str:
    digest = await rollout.client.update_weights(manifest_for(path, version), path, 20.0)
    await rollout.client.activate("shared", version)
    return digest


async def generate(rollout: Rollout, version: int = 0, k: int = 4, tokens: int = 8):
    sampling = SamplingSpec(max_new_tokens=tokens)
    request = GenerateRequest("shared", version, OBSERVATION, k, sampling, seed=7)
    return await rollout.client.generate(request, timeout_s=20.0)


async def test_generate_before_and_after_a_publish(rollout: Rollout, rollout_weights: Path):
    with pytest.raises(VersionNotLoadedError):
        await generate(rollout)
    manifest = manifest_for(rollout_weights)
    assert await publish(rollout, rollout_weights) == manifest.tensor_digest
    result = await generate(rollout)
    assert result.prompt_digest == prompt_digest(result.prompt_token_ids)
    assert len(result.candidates) == 4
    assert result.policy_version == 0
    assert 0 < result.engine_s < 20
    assert result.num_cached_tokens == 3 * len(result.prompt_token_ids)  # computed once for four
    assert all(candidate.version_spans == [] for candidate in result.candidates)
    status = await rollout.client.status()
    assert status.policies[0].active_version == 0
    assert status.policies[0].tensor_digest == manifest.tensor_digest
    assert status.engine == "cpu"
    assert status.num_in_flight == 0
    assert rollout.files_left() == []


async def test_prompt_when_it_fills_the_context_then_the_caller_knows_the_error_as_that(
    rollout: Rollout, rollout_weights: Path
):
    await publish(rollout, rollout_weights)
    shown = (Message("user", "w3 " * 5000),)
    request = GenerateRequest("shared", 0, shown, 1, SamplingSpec(max_new_tokens=8), seed=7)
    with pytest.raises(PromptTooLongError, match=r"The prompt has \d+ tokens and the context"):
        await rollout.client.generate(request, timeout_s=20.0)


async def test_metrics_when_calls_are_answered_refused_or_under_way_then_say_so(
    rollout: Rollout, rollout_weights: Path
):
    def counted(code: str) -> float:
        method = "/troupe.api.rollout.v1.RolloutService/Generate"
        labels = {"method": method, "code": code}
        return REGISTRY.get_sample_value("troupe_grpc_requests_total", labels) or 0.0

    def num_in_flight() -> float | None:
        return REGISTRY.get_sample_value("troupe_rollout_in_flight_candidates", {"job_id": "job"})

    await publish(rollout, rollout_weights)
    answered, refused = counted("OK"), counted(VersionNotLoadedError.code)
    under_way = asyncio.create_task(generate(rollout, tokens=64))
    async with asyncio.timeout(20.0):
        while num_in_flight() != 4:
            await rollout.client.status()
    assert counted("OK") == answered
    await under_way
    assert counted("OK") == answered + 1
    assert num_in_flight() == 0
    with pytest.raises(VersionNotLoadedError):
        await generate(rollout, version=9)
    async with asyncio.timeout(20.0):
        while counted(VersionNotLoadedError.code) != refused + 1:
            await rollout.client.status()


async def test_staged_version_can_be_scored_discarded_and_does_not_answer(
    rollout: Rollout, rollout_weights: Path
):
    await publish(rollout, rollout_weights)
    await rollout.client.update_weights(manifest_for(rollout_weights, 1), rollout_weights, 20.0)
    old = await rollout.client.score("shared", 0, [5, 6, 7])
    assert await rollout.client.score("shared", 1, [5, 6, 7]) == old
    with pytest.raises(VersionNotLoadedError):
        await generate(rollout, version=1)
    await rollout.client.discard("shared", 1)
    with pytest.raises(VersionNotLoadedError):
        await rollout.client.score("shared", 1, [5, 6, 7])
    await generate(rollout, version=0)


async def test_completions_when_scored_then_each_token_has_the_number_of_its_whole_sequence(
    rollout: Rollout, rollout_weights: Path
):
    await publish(rollout, rollout_weights)
    request = ScoreRequest("shared", 0, OBSERVATION, [5, 6, 7], [[8, 9, 4], [4]])
    scores = await rollout.client.score_completions(request, timeout_s=20.0)
    assert [len(s) for s in scores] == [3, 1]
    for completion, got in zip(request.completions, scores, strict=True):
        whole = await rollout.client.score("shared", 0, [5, 6, 7, *completion])
        assert list(got) == pytest.approx(whole[2:], abs=1e-5)
    for spoilt in ({"completions": [[8], []]}, {"prompt_token_ids": []}):
        with pytest.raises(InvalidArgumentError, match="no empty ones") as refused:
            await rollout.client.score_completions(replace(request, **spoilt), timeout_s=20.0)
        assert refused.value.pointer == "/completions"
    with pytest.raises(VersionNotLoadedError):
        await rollout.client.score_completions(replace(request, policy_version=7), timeout_s=20.0)


async def test_generation_goes_on_while_weights_are_received(
    rollout: Rollout, rollout_weights: Path
):
    await publish(rollout, rollout_weights)
    requests = [asyncio.ensure_future(generate(rollout, k=8, tokens=32)) for _ in range(20)]
    await publish(rollout, rollout_weights, version=1)
    results = await asyncio.gather(*requests)
    assert {result.policy_version for result in results} == {0}
    assert (await generate(rollout, version=1)).policy_version == 1


async def test_answers_that_follow_updates_when_a_version_comes_then_tell_who_sampled_what(
    rollout: Rollout, rollout_weights: Path
):
    await publish(rollout, rollout_weights)
    sampling = SamplingSpec(max_new_tokens=100)
    requests = [
        GenerateRequest(
            "shared", 0, OBSERVATION, 8, sampling, seed=seed, follows_updates=bool(seed % 2)
        )
        for seed in range(20)
    ]
    calls = [rollout.client.generate(request, timeout_s=60.0) for request in requests]
    asked = [asyncio.ensure_future(call) for call in calls]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    await publish(rollout, rollout_weights, version=1)
    answers = await asyncio.gather(*asked)
    gone_on = [c for answer in answers for c in answer.candidates if len(c.version_spans) > 1]
    assert gone_on
    for candidate in gone_on:
        assert [version for version, _ in candidate.version_spans] == [0, 1]
        assert sum(num for _, num in candidate.version_spans) == len(candidate.token_ids)
    assert {answer.policy_version for answer in answers[::2]} == {0}


async def test_prompt_of_token_ids_is_echoed(rollout: Rollout, rollout_weights: Path):
    await publish(rollout, rollout_weights)
    answer = await RolloutServiceStub(rollout.channel).Generate(
        pb.GenerateRequest(
            policy="shared",
            tokens=pb.TokenPrompt(token_ids=[5, 6, 7]),
            num_candidates=2,
            sampling=pb.SamplingParams(temperature=1, top_p=1, max_new_tokens=3),
        ),
        timeout=20,
    )
    assert list(answer.prompt.token_ids) == [5, 6, 7]
    assert len(answer.candidates) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"num_candidates": 0},
        {"num_candidates": 100_000},
        {"sampling": pb.SamplingParams(temperature=-1, top_p=1, max_new_tokens=3)},
        {"tokens": pb.TokenPrompt(token_ids=[99_999])},
        {"tokens": pb.TokenPrompt()},
        {"chat": pb.ChatPrompt(messages=[pb.ChatMessage(role="robot", content="x")])},
    ],
)
async def test_generate_when_the_request_is_wrong_is_invalid(
    rollout: Rollout, rollout_weights: Path, change: dict[str, object]
):
    await publish(rollout, rollout_weights)
    request: dict[str, object] = {
        "policy": "shared",
        "tokens": pb.TokenPrompt(token_ids=[5]),
        "num_candidates": 1,
        "sampling": pb.SamplingParams(temperature=1, top_p=1, max_new_tokens=3),
    }
    if "chat" in change:
        del request["tokens"]
    message = pb.GenerateRequest(**(request | change))  # pyright: ignore
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await RolloutServiceStub(rollout.channel).Generate(message, timeout=20)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_generate_while_draining_is_unavailable(rollout: Rollout, rollout_weights: Path):
    await publish(rollout, rollout_weights)
    slow = asyncio.ensure_future(generate(rollout, k=64, tokens=200))
    while (await rollout.client.status()).num_in_flight == 0:
        pass
    drained = asyncio.ensure_future(rollout.servicer.wait_idle())
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError):
        await generate(rollout)
    assert len((await slow).candidates) == 64
    await asyncio.wait_for(drained, 5)


async def test_update_when_the_staging_folder_was_cleaned_away_then_makes_it_again(
    rollout: Rollout, rollout_weights: Path
):
    for folder in rollout.staging_dir.iterdir():
        folder.rmdir()
    await publish(rollout, rollout_weights, 1)
    assert rollout.files_left() == []


Parts = Sequence[pb.UpdateWeightsRequest]


def parts_of(path: Path, *, chunk_bytes: int = 4096) -> list[pb.UpdateWeightsRequest]:
    manifest = pb.UpdateWeightsRequest(manifest=manifest_for(path, 1))
    chunks = iter_chunks(path, chunk_bytes=chunk_bytes)
    return [manifest, *(pb.UpdateWeightsRequest(chunk=chunk) for chunk in chunks)]


def lost_chunk(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    return parts[:3] + parts[4:]


def repeated_chunk(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    return [*parts[:3], parts[2], *parts[3:]]


def early_end(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    return parts[:-1]


def flipped_bit(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    data = bytearray(parts[2].chunk.data)
    data[7] ^= 1
    parts[2].chunk.data = bytes(data)
    return parts


def other_tensors(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    """A wrong byte that the sender's own CRC covers."""
    flipped_bit(parts)
    parts[2].chunk.crc32 = zlib.crc32(parts[2].chunk.data)
    return parts


def surplus(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    end = parts[0].manifest.size_bytes
    extra = pb.WeightsChunk(offset_bytes=end, data=b"x", crc32=zlib.crc32(b"x"))
    return [*parts, pb.UpdateWeightsRequest(chunk=extra)]


def wrong_digest(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    parts[0].manifest.tensor_digest = "0" * 64
    return parts


def wrong_name(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    manifest = parts[0].manifest
    manifest.tensors[0].name = "impostor"
    manifest.tensor_digest = digest_of_sums(sums_in(manifest))
    return parts


def too_large(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    parts[0].manifest.size_bytes = 2**23
    return parts


def no_manifest(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    return parts[1:]


def two_manifests(parts: list[pb.UpdateWeightsRequest]) -> Parts:
    return [parts[0], *parts]


async def refusal_of(rollout: Rollout, parts: Parts) -> grpc.aio.AioRpcError:
    """The server's answer; gRPC loses one that comes while parts are still being sent."""
    for _ in range(20):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RolloutServiceStub(rollout.channel).UpdateWeights(iter(parts), timeout=20)
        if caught.value.details() != CORE_FAILED:
            return caught.value
    raise AssertionError("20 answers in a row got lost")


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (lost_chunk, grpc.StatusCode.DATA_LOSS, "arrived where byte"),
        (repeated_chunk, grpc.StatusCode.DATA_LOSS, "arrived where byte"),
        (early_end, grpc.StatusCode.DATA_LOSS, "were announced"),
        (flipped_bit, grpc.StatusCode.DATA_LOSS, "CRC-32"),
        (other_tensors, grpc.StatusCode.DATA_LOSS, "digest of tensor '"),
        (surplus, grpc.StatusCode.DATA_LOSS, "more than the announced"),
        (wrong_digest, grpc.StatusCode.DATA_LOSS, "digest"),
        (wrong_name, grpc.StatusCode.DATA_LOSS, "tensor 'impostor'"),
        (too_large, grpc.StatusCode.DATA_LOSS, "8388608 bytes are announced"),
        (no_manifest, grpc.StatusCode.INVALID_ARGUMENT, "first message"),
        (two_manifests, grpc.StatusCode.INVALID_ARGUMENT, "only chunks"),
    ],
)
async def test_damaged_upload_is_refused_and_leaves_nothing(
    rollout: Rollout, rollout_weights: Path, damage, code: grpc.StatusCode, message: str
):
    await publish(rollout, rollout_weights)
    parts = damage(parts_of(rollout_weights))
    refusal = await refusal_of(rollout, parts)
    assert (refusal.code(), message in (refusal.details() or "")) == (code, True), refusal
    (state,) = (await rollout.client.status()).policies
    assert (state.loaded_versions, state.staged_versions) == ((0,), ())
    assert rollout.files_left() == []
    assert (await generate(rollout)).policy_version == 0


async def test_upload_that_goes_silent_ends_and_leaves_nothing(
    rollout: Rollout, rollout_weights: Path
):
    parts = parts_of(rollout_weights)
    forever = asyncio.Event()

    async def silent() -> AsyncIterator[pb.UpdateWeightsRequest]:
        for part in parts[:3]:
            yield part
        await forever.wait()

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await RolloutServiceStub(rollout.channel).UpdateWeights(silent(), timeout=20)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert rollout.files_left() == []


async def test_upload_whose_sender_is_gone_leaves_nothing(rollout: Rollout, rollout_weights: Path):
    parts = parts_of(rollout_weights)
    call = RolloutServiceStub(rollout.channel).UpdateWeights(timeout=20)
    for part in parts[:3]:
        await call.write(part)
    call.cancel()
    async with asyncio.timeout(30):
        await rollout.servicer.wait_idle()
        assert rollout.files_left() == []


async def test_update_of_a_policy_that_is_not_served_is_invalid(
    rollout: Rollout, rollout_weights: Path
):
    manifest = manifest_for(rollout_weights)
    manifest.policy = "coder"
    with pytest.raises(InvalidArgumentError, match="coder"):
        await rollout.client.update_weights(manifest, rollout_weights, 20.0)


async def test_update_with_a_missing_file_is_not_found(rollout: Rollout, rollout_weights: Path):
    with pytest.raises(NotFoundError):
        await rollout.client.update_weights(
            manifest_for(rollout_weights), rollout_weights.with_name("gone"), 20.0
        )


async def test_activate_tells_that_another_version_answers(rollout: Rollout, rollout_weights: Path):
    await rollout.client.update_weights(manifest_for(rollout_weights), rollout_weights, 20.0)
    assert rollout.told == []
    await rollout.client.activate("shared", 0)
    assert rollout.told == ["changed"]


async def test_activate_of_a_version_that_is_not_there_says_so(rollout: Rollout):
    with pytest.raises(VersionNotLoadedError):
        await rollout.client.activate("shared", 4, timeout_s=2.0)


async def test_rejected_error_keeps_its_class_on_the_wire(rollout: Rollout, rollout_weights: Path):
    manifest = manifest_for(rollout_weights)
    manifest.sha256 = "0" * 64
    with pytest.raises(WeightsRejectedError, match="SHA-256"):
        await rollout.client.update_weights(manifest, rollout_weights, 20.0)


class _FullDisk:
    """A file on a disk that fills up after the first chunk."""

    def __init__(self) -> None:
        self.written = 0

    def __enter__(self) -> "_FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def write(self, data: bytes) -> int:
        self.written += 1
        if self.written > 1:
            raise OSError(28, "No space left on device")
        return len(data)


async def test_disk_that_fills_up_is_a_retryable_error_and_the_old_version_serves(
    rollout: Rollout, rollout_weights: Path, monkeypatch: pytest.MonkeyPatch
):
    await publish(rollout, rollout_weights)
    monkeypatch.setattr("troupe_rollout.staging._created", lambda path: _FullDisk())
    call = RolloutServiceStub(rollout.channel).UpdateWeights(
        iter(parts_of(rollout_weights)), timeout=20
    )
    with pytest.raises(grpc.aio.AioRpcError, match="No space left") as caught:
        await call
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(UnavailableError, match="do not fit the 10 free bytes"):
        manifest = manifest_for(rollout_weights, 1)
        await rollout.client.update_weights(manifest, rollout_weights, 20.0)
    assert rollout.files_left() == []
    assert (await generate(rollout)).policy_version == 0
