"""Images over gRPC: what the rollout service samples of them is what the trainer computes."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from safetensors.torch import save_file
from trainer_data import job_spec
from transformers import AutoModelForImageTextToText
from vision_data import KINDS, random_image, save_vision_model, save_vision_tokenizer

from troupe.api.records.v1 import records_pb2 as pb
from troupe.api.rollout.v1 import rollout_pb2
from troupe.api.rollout.v1.rollout_pb2_grpc import (
    RolloutServiceStub,
    add_RolloutServiceServicer_to_server,
)
from troupe.candidates import GenerateRequest, Generation, finish_reason_to_proto, prompt_to_proto
from troupe.clients import codec
from troupe.clients.channel import SERVER_OPTIONS
from troupe.clients.rollout import RolloutClient
from troupe.ids import prompt_digest
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.spec.batch import BatchSpec
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import PolicySpec
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message, Observation
from troupe.vision.wire import image_table
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.servicer import RolloutServicer
from troupe_rollout.settings import RolloutSettings
from troupe_rollout.staging import StagingArea
from troupe_trainer.model.kernels import PLAIN
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import pack
from troupe_trainer.samples import credit

TEMPERATURE = 0.9


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def seeing_model(kind: str, tmp_path: Path) -> Path:
    return save_vision_tokenizer(save_vision_model(tmp_path / "model", kind))


@pytest.fixture
async def address(seeing_model: Path, tmp_path: Path) -> AsyncIterator[str]:
    """Of a rollout service that serves the model as version 0."""
    weights, engine = tmp_path / "weights", CpuEngine()
    model = AutoModelForImageTextToText.from_pretrained(seeing_model)
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, weights)
    await engine.start({"shared": PolicySpec(model=str(seeing_model))})
    await engine.stage(StagedWeights("shared", 0, "full", weights, ""))
    await engine.activate("shared", 0)
    staging = StagingArea(str(tmp_path / "in"), max_bytes=2**22, max_uploads=2, chunk_timeout_s=0.5)
    servicer = RolloutServicer(RolloutSettings(), engine, staging)
    servicer.open(str(seeing_model), "job")
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
    add_RolloutServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)
    await engine.stop()


def _request(chat: Observation) -> GenerateRequest[Observation]:
    sampling = SamplingSpec(max_new_tokens=16, temperature=TEMPERATURE)
    return GenerateRequest("shared", 0, chat, 8, sampling, seed=7)


def _chats(kind: str) -> list[Observation]:
    rng = random.Random(3)
    one, two, other = (random_image(rng, kind, *size) for size in ((3, 3), (2, 4), (3, 3)))
    return [
        (Message("user", (TextPart("w1"), image, TextPart("w2"))), *rest)
        for image, rest in (
            (one, ()),
            (other, ()),
            (two, (Message("assistant", "w3 w4"), Message("user", (one, TextPart("w5"))))),
        )
    ] + [(Message("user", "w6 w7"),)]


def _group(chat: Observation, drawn: Generation) -> pb.Group:
    images = {image.digest: image for message in chat for image in message.images}
    group = pb.Group(
        group_id="g",
        policy="shared",
        prompts=[prompt_to_proto(drawn)],
        images=image_table(images.values()),
    )
    for index, candidate in enumerate(drawn.candidates):
        group.candidates.add(
            index=index,
            token_ids=candidate.token_ids,
            rollout_logprobs=candidate.logprobs,
            finish_reason=finish_reason_to_proto(candidate.finish_reason),
            prompt_digest=drawn.prompt_digest,
        )
    return group


async def test_logprobs_when_chats_have_images_then_the_trainer_computes_the_same(
    address: str, seeing_model: Path, kind: str
) -> None:
    client, chats = RolloutClient(address, retry_for_s=0.0), _chats(kind)
    drawn = [await client.generate(_request(chat), timeout_s=60.0) for chat in chats]
    await client.close()
    assert drawn[0].prompt_token_ids == drawn[1].prompt_token_ids
    assert drawn[0].prompt_digest != drawn[1].prompt_digest
    for generation in drawn:
        digests = [image.digest for image in generation.prompt_images]
        assert generation.prompt_digest == prompt_digest(generation.prompt_token_ids, digests)

    train = {"kind": "full"}
    spec = job_spec(seeing_model, policies={"shared": {"model": str(seeing_model), "train": train}})
    policy = PolicyModel("shared", spec.policies["shared"], seed=0, device="cpu", kernels=PLAIN)
    groups = [_group(chat, generation) for chat, generation in zip(chats, drawn, strict=True)]
    prompts = [p for group in groups for p in credit(group, [1.0] * 8, TEMPERATURE).prompts]
    [batch] = pack(prompts, BatchSpec(), shares_prompts=policy.shares_prompts)
    computed = policy.logprobs(batch, want_entropy_grad=False)[0].tolist()

    by_sample: dict[int, list[float]] = {}
    for sequence, value in zip(batch.sequence_N.tolist(), computed, strict=True):
        by_sample.setdefault(sequence, []).append(value)
    for sequence, values in by_sample.items():
        sampled = list(batch.samples[sequence].rollout_logprobs)
        assert values == pytest.approx(sampled, abs=1e-5)


async def test_generate_when_an_image_is_not_what_it_says_then_refused(address: str) -> None:
    image = ImagePart(64, 64, bytes(3 * 64 * 64))
    channel = grpc.aio.insecure_channel(address)
    chat = codec.chat_to_proto((Message("user", (image,)),))
    for change in ({"png": b"GIF89a"}, {"width": 96}, {"digest": "0" * 64}):
        wrong = rollout_pb2.ChatPrompt()
        wrong.CopyFrom(chat)
        for field, value in change.items():
            setattr(wrong.images[0], field, value)
        sampling = codec.sampling_to_proto(SamplingSpec(max_new_tokens=2), 1)
        request = rollout_pb2.GenerateRequest(
            policy="shared", chat=wrong, num_candidates=1, sampling=sampling
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await RolloutServiceStub(channel).Generate(request, timeout=20.0)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    await channel.close(None)
