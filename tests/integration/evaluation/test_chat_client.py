"""The chat client against a real HTTP server that fails now and then."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from chat_server import ChatServer, serving

from troupe.candidates import GenerateRequest
from troupe.clients.chat import ChatClient
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    TroupeError,
    UnavailableError,
)
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message
from troupe.vision.data_url import image_of_url

PROMPT = (Message("user", "at b2 open U D planner"),)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving(ChatServer()) as running:
        yield running


@pytest.fixture
async def client(server: ChatServer) -> AsyncIterator[ChatClient]:
    client = ChatClient(server.url + "/", max_attempts=3)
    yield client
    await client.close()


async def ask(client: ChatClient, *, model: str = "rule", timeout_s: float = 20.0, **sampling):
    request = GenerateRequest("coder", 3, PROMPT, 2, SamplingSpec(**sampling), 2**40 + 5)
    return await client.complete(model, request, timeout_s=timeout_s)


async def test_complete_when_the_prompt_has_an_image_then_sends_it_as_a_data_url(
    server: ChatServer, client: ChatClient
) -> None:
    image = ImagePart(28, 30, bytes(range(252)) * 10)
    chat = (Message("user", (TextPart("look"), image)), PROMPT[0])
    request = GenerateRequest("coder", 0, chat, 2, SamplingSpec(), 1)

    await client.complete("rule", request, timeout_s=20.0)

    [text, shown], plain = (m["content"] for m in server.bodies[0]["messages"])
    assert (text, plain) == ({"type": "text", "text": "look"}, PROMPT[0].content)
    assert shown["type"] == "image_url"
    assert image_of_url(shown["image_url"]["url"]) == image


async def test_complete_when_asked_then_sends_the_sampling_and_reads_the_choices(
    server: ChatServer, client: ChatClient
) -> None:
    found = await ask(client, temperature=0.5, top_p=0.9, max_new_tokens=9, stop=["x"])
    assert [c.text for c in found.candidates] == ["plan U", "plan U"]
    assert (found.num_prompt_tokens, found.num_sampled_tokens) == (30, 2)
    [body] = server.bodies
    assert body == {
        "model": "rule",
        "messages": [{"role": "user", "content": PROMPT[0].content}],
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 9,
        "seed": 5,
        "stop": ["x"],
    }


async def test_complete_when_a_filter_withheld_the_answer_then_it_is_no_answer(
    server: ChatServer, client: ChatClient
) -> None:
    server.finish_reason = "content_filter"
    with pytest.raises(InvalidArgumentError, match="content filter"):
        await ask(client)
    assert len(server.bodies) == 1


async def test_complete_when_the_server_is_busy_or_broken_then_asks_again(
    server: ChatServer, client: ChatClient
) -> None:
    server.failures = [(429, {"Retry-After": "0"}), (503, {})]
    found = await ask(client)
    assert len(found.candidates) == 2
    assert len(server.bodies) == 3


@pytest.mark.parametrize(("status", "error"), [(429, OverloadedError), (500, UnavailableError)])
async def test_complete_when_it_stays_so_then_the_error_is_retryable(
    server: ChatServer, client: ChatClient, status: int, error: type[TroupeError]
) -> None:
    server.failures = [(status, {})] * 9
    with pytest.raises(error) as caught:
        await ask(client)
    assert caught.value.retryable
    assert len(server.bodies) == 3


async def test_complete_when_told_to_wait_beyond_the_deadline_then_does_not_wait(
    server: ChatServer, client: ChatClient
) -> None:
    server.failures = [(429, {"Retry-After": "3600"})]
    async with asyncio.timeout(30):
        with pytest.raises(OverloadedError):
            await ask(client)


async def test_complete_when_refused_then_is_not_asked_again(
    server: ChatServer, client: ChatClient
) -> None:
    server.failures = [(400, {})]
    with pytest.raises(InvalidArgumentError, match="not now"):
        await ask(client)
    with pytest.raises(NotFoundError, match="no other"):
        await ask(client, model="other")
    assert len(server.bodies) == 2


async def test_complete_when_no_answer_comes_then_the_deadline_holds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ChatClient(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        with pytest.raises(DeadlineError, match=r"0\.2 s"):
            await ask(client, timeout_s=0.2)
        await client.close()


async def test_client_when_nobody_listens_then_says_where(free_port) -> None:
    client = ChatClient(f"http://127.0.0.1:{free_port()}/v1", max_attempts=2)
    with pytest.raises(UnavailableError, match="no server answers at"):
        await client.models(timeout_s=5)
    await client.close()


async def test_client_when_the_key_is_wrong_then_names_the_variable_and_not_the_key() -> None:
    with serving(ChatServer(key="right")) as server:
        client = ChatClient(server.url, api_key="wr0ng")
        with pytest.raises(InvalidArgumentError, match="TROUPE_OPENAI_API_KEY") as caught:
            await client.models(timeout_s=5)
        await client.close()
        assert "wr0ng" not in caught.value.message
        client = ChatClient(server.url, api_key="right")
        assert await client.models(timeout_s=5) == ["rule"]
        await client.close()
