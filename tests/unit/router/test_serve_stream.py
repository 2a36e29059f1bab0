"""What a stream of a served team sends while its answer is not there."""

import asyncio
import json
from pathlib import Path
from typing import Any

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


async def test_stream_when_the_answer_takes_long_then_chunks_without_content_come_before_it(
    tmp_path: Path,
) -> None:
    model, sent = _Slow(), bytearray()
    team = ServedTeam(None, {"slow": model}, ())  # type: ignore[arg-type]
    app = ChatEndpoint(team, ServeSettings(team=tmp_path, keep_alive_s=0.01)).app()
    asked = {"model": "slow", "stream": True, "messages": [{"role": "user", "content": "?"}]}
    requests = [{"type": "http.request", "body": json.dumps(asked).encode()}]

    async def receive() -> dict[str, Any]:
        if not requests:
            await asyncio.Event().wait()
        return requests.pop()

    async def send(message: Any) -> None:
        if body := message.get("body"):
            sent.extend(body)
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
    lines = sent.decode().split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert lines[-2:] == ["data: [DONE]", ""]
    texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert texts[0] == ""
    assert [text for text in texts if text] == ["done"]
    assert len({chunk["id"] for chunk in chunks}) == 1
