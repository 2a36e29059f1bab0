"""Models that take images on a real SGLang: what it computes of them is what the trainer does."""

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from sglang_world import LORA, engine_settings, push, worst

from benchmarks.random_vision_model import (
    IMAGE,
    KINDS,
    random_image,
    save_vision_model,
    save_vision_tokenizer,
)
from benchmarks.rollout_fleet import TinyTrainer
from troupe.candidates import GenerateRequest, Generation
from troupe.errors import InvalidArgumentError
from troupe.evaluation.bare import stage_bare
from troupe.ids import prompt_digest
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message, Observation, observed_images
from troupe_rollout.engines.sglang import SglangEngine

# peft 0.21 reads a name that transformers 5.23 calls deprecated.
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.timeout(1200),
]
POLICIES = ("adapter", "whole")


@dataclass(frozen=True)
class Seeing:
    """An engine whose two servers hold one model: for adapters, and for all weights."""

    kind: str
    engine: SglangEngine
    trainers: dict[str, TinyTrainer]

    async def pushed(self, policy: str, seed: int, size: float = 0.05) -> int:
        """The next version, which the trainer learnt; its canary has an image."""
        trainer = self.trainers[policy]
        states = {state.policy: state for state in self.engine.policies()}
        active = states[policy].active_version
        version = 0 if active is None else active + 1
        trainer.learn(seed, size)
        await push(self.engine, trainer, version)
        return version

    async def drawn(self, policy: str, version: int, chat: Observation) -> Generation:
        sampling = SamplingSpec(max_new_tokens=12, temperature=1.0)
        prompt, images = self.engine.render(policy, chat), observed_images(chat)
        request = GenerateRequest(policy, version, prompt, 4, sampling, seed=5, images=images)
        return await self.engine.generate(request)

    def differences(self, policy: str, chat: Observation, drawn: Generation) -> list[float]:
        """Of the trainer's logprobs to the sampled ones, the largest of each candidate."""
        prompt, images = list(drawn.prompt_token_ids), observed_images(chat)
        model = self.trainers[policy].model
        found: list[float] = []
        for candidate in drawn.candidates:
            if IMAGE in candidate.token_ids:
                continue  # a random model may sample one, and the trainer's score takes no such ids
            ids = [*prompt, *candidate.token_ids]
            found.append(worst(model.score(ids, images)[len(prompt) - 1 :], candidate.logprobs))
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def seeing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Seeing]:
    kind, folder = str(request.param), tmp_path_factory.mktemp("seeing")
    model = save_vision_tokenizer(save_vision_model(folder / "model", kind, intermediate=64))
    specs = {
        "adapter": PolicySpec(model=str(model), train=LORA),
        "whole": PolicySpec(model=str(model), train=FullSpec(vision=True)),
        "bare": PolicySpec(model=str(model), train=LoraSpec(rank=1, alpha=1)),
    }
    engine = SglangEngine(engine_settings(folder / "work", start_timeout_s=900))
    await engine.start(specs)
    trainers = {name: TinyTrainer(name, spec, folder / name) for name, spec in specs.items()}
    yield Seeing(kind, engine, trainers)
    starts = [server.num_starts for server in engine._servers]
    await engine.stop()
    assert starts == [1, 1], "a server died in between"


def _chats(kind: str) -> list[Observation]:
    rng = random.Random(3)
    one, two, other = (random_image(rng, kind, *size) for size in ((3, 3), (2, 4), (3, 3)))
    odd = ImagePart(100, 77, rng.randbytes(3 * 7700))
    return [
        (Message("user", (TextPart("w1"), one, TextPart("w2"))),),
        (Message("user", (TextPart("w1"), other, TextPart("w2"))),),
        (
            Message("user", (two, odd, TextPart("w2"))),
            Message("assistant", "w3 w4"),
            Message("user", (one, TextPart("w5"))),
        ),
        (Message("user", "w6 w7"),),
    ]


@pytest.mark.parametrize("policy", POLICIES)
async def test_generate_when_prompts_have_images_then_logprobs_are_the_trainers(
    seeing: Seeing, policy: str
) -> None:
    version = await seeing.pushed(policy, seed=1)
    chats = _chats(seeing.kind)
    drawn = [await seeing.drawn(policy, version, chat) for chat in chats]
    for chat, generation in zip(chats, drawn, strict=True):
        images = observed_images(chat)
        digests = [image.digest for image in images]
        assert [image.digest for image in generation.prompt_images] == digests
        assert generation.prompt_digest == prompt_digest(generation.prompt_token_ids, digests)
        found = seeing.differences(policy, chat, generation)
        print(seeing.kind, policy, len(images), "images", f"{max(found):.1e}")
        assert max(found) < 5e-5
    assert drawn[0].prompt_token_ids == drawn[1].prompt_token_ids
    assert drawn[0].prompt_digest != drawn[1].prompt_digest


@pytest.mark.parametrize("policy", POLICIES)
async def test_prompt_when_only_its_image_differs_then_the_cache_holds_what_stands_before_it(
    seeing: Seeing, policy: str
) -> None:
    version = await seeing.pushed(policy, seed=2)
    rng = random.Random(4)
    chats: list[Observation] = [
        (Message("user", (TextPart("w1"), random_image(rng, seeing.kind, 3, 3))),) for _ in range(2)
    ]
    cached = [
        (await seeing.drawn(policy, version, chat)).num_cached_tokens for chat in [*chats, chats[0]]
    ]
    num_tokens = len(seeing.engine.render(policy, chats[0]))
    new = 4 * num_tokens - (num_tokens + 4)  # computed once, then the last token of each
    before = 4  # start, "user", "w1" and the image's start
    assert cached == [new, new + before, 4 * num_tokens - 5]


@pytest.mark.parametrize("policy", POLICIES)
async def test_push_when_an_image_was_seen_before_then_its_features_are_of_the_new_weights(
    seeing: Seeing, policy: str
) -> None:
    chat = _chats(seeing.kind)[0]
    canary = seeing.trainers[policy].export(0).canary
    before: Sequence[float] = [0.0] * (len(canary.token_ids) - 1)
    for seed in (3, 4, 5):
        version = await seeing.pushed(policy, seed)
        scores = await seeing.engine.score(policy, version, canary.token_ids, canary.images)
        assert worst(scores, before) > 0.01
        before = scores
        drawn = await seeing.drawn(policy, version, chat)
        assert max(seeing.differences(policy, chat, drawn)) < 5e-5


async def test_model_when_no_adapter_was_trained_then_is_served_as_it_is(
    seeing: Seeing, tmp_path: Path
) -> None:
    await stage_bare(seeing.engine, "bare", seeing.engine._served["bare"].base.name, tmp_path)
    await seeing.engine.activate("bare", 0)
    for chat in _chats(seeing.kind):
        drawn = await seeing.drawn("bare", 0, chat)
        assert max(seeing.differences("bare", chat, drawn)) < 5e-5


async def test_prompt_when_its_images_are_not_its_placeholders_then_refused_before_the_server(
    seeing: Seeing,
) -> None:
    version = await seeing.pushed("whole", seed=6)
    canary = seeing.trainers["whole"].export(0).canary
    for images in ((), canary.images * 2):
        with pytest.raises(InvalidArgumentError, match="image tokens of a prompt"):
            await seeing.engine.score("whole", version, canary.token_ids, images)
