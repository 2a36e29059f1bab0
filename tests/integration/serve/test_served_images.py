"""A served agent that takes images, asked as OpenAI's clients ask with images."""

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from vision_data import random_image, save_vision_model, save_vision_tokenizer

from troupe.candidates import GenerateRequest, Generation
from troupe.episodes.local import EngineRollout
from troupe.errors import InvalidArgumentError
from troupe.evaluation.refs import WeightsRef
from troupe.evaluation.serving import serving_engine
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message, Observation
from troupe.vision.data_url import data_url
from troupe_router.serve.models import AgentModel, ServedAnswer, team_text
from troupe_router.serve.request import AskedChat, read_chat

KIND = "qwen2_5_vl"
TAKEN = SamplingSpec(max_new_tokens=12)


class _Noted:
    """Passes requests on to an engine, and keeps what it answered."""

    def __init__(self, rollout: EngineRollout) -> None:
        self._rollout = rollout
        self.generations: list[Generation] = []

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        self.generations.append(await self._rollout.generate(request, timeout_s=timeout_s))
        return self.generations[-1]


@pytest.fixture
async def rollout(tmp_path: Path) -> AsyncIterator[_Noted]:
    folder = save_vision_tokenizer(save_vision_model(tmp_path / "model", KIND))
    ref = WeightsRef(str(folder))
    async with serving_engine({ref: "seer"}, "cpu", {ref: "float32"}) as engine:
        yield _Noted(EngineRollout(engine, "seer"))


def _image(seed: int = 1) -> ImagePart:
    return random_image(random.Random(seed), KIND, 2, 3)


def _part(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def _read(*content: dict[str, Any], role: str = "user") -> AskedChat:
    last = {"role": "user", "content": "w9"}
    body = {"model": "a", "messages": [{"role": role, "content": list(content)}, last], "seed": 4}
    return read_chat(json.dumps(body).encode(), max_choices=4)


async def _answer(rollout: _Noted, asked: AskedChat) -> ServedAnswer:
    agent = AgentModel("seer", "seer", "w1", TAKEN, rollout)
    return await agent.answer(asked, lambda _: None, timeout_s=60.0)


async def test_agent_when_asked_with_images_then_reads_each_where_it_stood(
    rollout: _Noted,
) -> None:
    one, two = _image(1), _image(2)
    text = {"type": "text", "text": "w2"}
    answers = [
        await _answer(rollout, _read(text, _part(data_url(image)), text)) for image in (one, two)
    ]

    chat = (
        Message("system", "w1"),
        Message("user", (TextPart("w2"), one, TextPart("w2"))),
        Message("user", "w9"),
    )
    same = await rollout.generate(GenerateRequest("x", 0, chat, 1, TAKEN, 4), timeout_s=60.0)
    first, second, _ = rollout.generations
    assert first.prompt_token_ids == same.prompt_token_ids
    assert first.candidates == same.candidates
    assert [i.digest for i in second.prompt_images] == [two.digest]
    assert second.candidates != first.candidates
    assert answers[0].num_prompt_tokens == len(same.prompt_token_ids)


@pytest.mark.parametrize(
    "part",
    [
        _part("https://example.org/cat.png"),
        _part("data:image/jpeg;base64,AAAA"),
        _part("data:image/png;base64,&&&&"),
        _part("data:image/png;base64,AAAA"),
        _part("data:image/png;base64," + "A" * 1_500_000),
        _part(None),
        _part(data_url(_image()), detail="best"),
        {"type": "image_url", "image_url": data_url(_image())},
        {"type": "input_audio", "input_audio": {}},
    ],
    ids=["url", "jpeg", "not base64", "no png", "large", "none", "detail", "no object", "audio"],
)
def test_request_when_a_part_is_no_png_then_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        _read(part)


def test_request_when_images_are_nine_or_not_the_users_then_is_refused() -> None:
    part = _part(data_url(_image()))
    with pytest.raises(InvalidArgumentError, match="at most 8 images"):
        _read(*[part] * 9)
    with pytest.raises(InvalidArgumentError, match="image_url"):
        _read(part, role="assistant")


def test_team_when_asked_with_an_image_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no images"):
        team_text(_read(_part(data_url(_image()))))
