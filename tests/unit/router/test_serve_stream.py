"""What a served team sends while an answer is not there, and where none comes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from troupe.wire.dialect import ModelAnswer
from troupe_router.serve.endpoint import ChatEndpoint
from troupe_router.serve.models import Note, ServedAnswer
from troupe_router.serve.request import AskedChat
from troupe_router.serve.settings import ServeSettings
from troupe_router.serve.team import ServedTeam


class _Slow:
    """A model that answers once its client has been sent something."""

    name = "slow"

    def __init__(self) -> None:
        self.is_heard = asyncio.Event()

    def facts(self) -> dict[str, Any]:
        return {}

    async def answer(self, asked: AskedChat, note: Note, *, timeout_s: float) -> ServedAnswer:
        await self.is_heard.wait()
        return ServedAnswer([ModelAnswer("done")], 1, 1)


class _Broken(_Slow):
    """A model that raises what nobody expects."""

    async def answer(self, asked: AskedChat, note: Note, *, timeout_s: float) -> ServedAnswer:
        raise KeyError("x")


async def asked_of(model: _Slow, folder: Path, *, stream: bool) -> tuple[list[Any], bytes]:
    """What the endpoint sends to one request: its messages, and their bodies together."""
    messages: list[Any] = []
    team = ServedTeam(None, {"slow": model}, ())  # type: ignore[arg-type]
    app = ChatEndpoint(team, ServeSettings(team=folder, keep_alive_s=0.01)).app()
    asked = {"model": "slow", "stream": stream, "messages": [{"role": "user", "content": "?"}]}
    requests = [{"type": "http.request", "body": json.dumps(asked).encode()}]

    async def receive() -> dict[str, Any]:
        if not requests:
            await asyncio.Event().wait()
        return requests.pop()

    async def send(message: Any) -> None:
        messages.append(message)
        if message.get("body"):
            model.is_heard.set()

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [],
        "query_string": b"",
    }
    async with asyncio.timeout(10):
        await app(scope, receive, send)
    return messages, b"".join(message.get("body", b"") for message in messages)


@pytest.mark.parametrize("stream", [False, True])
async def test_request_when_its_model_fails_then_the_answer_is_whole_and_the_connection_stays(
    tmp_path: Path, stream: bool
) -> None:
    messages, body = await asked_of(_Broken(), tmp_path, stream=stream)
    assert messages[0]["status"] == 500
    assert "KeyError" in json.loads(body)["error"]["message"]


async def test_stream_when_the_answer_takes_long_then_chunks_without_content_come_before_it(
    tmp_path: Path,
) -> None:
    _, sent = await asked_of(_Slow(), tmp_path, stream=True)
    lines = sent.decode().split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert lines[-2:] == ["data: [DONE]", ""]
    texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert texts[0] == ""
    assert [text for text in texts if text] == ["done"]
    assert len({chunk["id"] for chunk in chunks}) == 1
