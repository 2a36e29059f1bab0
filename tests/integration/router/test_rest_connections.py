"""What a connection may cost before anybody is authenticated, asked of the REST server itself."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from test_router_door import pair

from troupe.clients.rest.errors import SlowBodyError
from troupe_router.rest import bodies, connections
from troupe_router.rest.connections import Connections
from troupe_router.rest.server import RestServer

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
BIG = 1 << 20


async def _answer(request: Request) -> Response:
    """As long as the test wants, in as many parts."""
    if request.query_params.get("big"):
        return StreamingResponse(_parts(request.app.state.goes_on, [b"x" * BIG] * 8))
    if request.query_params.get("slow"):
        return StreamingResponse(_parts(request.app.state.goes_on, [b"one", b"two"]))
    try:
        return PlainTextResponse(str(len(await bodies.read_archive(request, BIG))))
    except SlowBodyError as error:
        return PlainTextResponse(error.reason, error.http_status)


async def _parts(goes_on: asyncio.Event, parts: list[bytes]) -> AsyncIterator[bytes]:
    yield parts[0]
    await goes_on.wait()
    for part in parts[1:]:
        yield part


async def _ok(_: Request) -> Response:
    return PlainTextResponse("ok")


@dataclass
class Port:
    """A port that is served, and the connections to it."""

    number: int
    goes_on: asyncio.Event
    known: Connections
    tls: ssl.SSLContext | None = None
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, sent: bytes = b"", *, is_plain: bool = False) -> asyncio.StreamReader:
        tls = None if is_plain else self.tls
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number, ssl=tls)
        self.writers.append(writer)
        writer.write(sent)
        return reader

    async def asked(self, path: str) -> asyncio.StreamReader:
        """A connection that asked for a long answer, once its head is there."""
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        reader = await self.connect(request.encode())
        await reader.readuntil(b"\r\n\r\n")
        return reader

    async def answers(self) -> bool:
        """Whether a whole request on a new connection is answered."""
        try:
            reader = await self.connect(HEAD + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            return head.startswith(b"HTTP/1.1 200") and await reader.readexactly(2) == b"ok"
        except (asyncio.IncompleteReadError, ConnectionError):
            return False


@asynccontextmanager
async def serving(most: int = 100, files: tuple[Path, Path] | None = None) -> AsyncIterator[Port]:
    """A server with room for ``most`` connections; what is waited for has a deadline."""
    app = Starlette(routes=[Route("/", _ok), Route("/long", _answer, methods=["GET", "POST"])])
    app.state.goes_on = asyncio.Event()
    certificate, key = files or (None, None)
    known = Connections(most)
    server = RestServer.of(app, certificate, key, known)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    number = listener.getsockname()[1]
    task = await server.begin(listener)
    trusting = ssl.create_default_context(cafile=certificate) if certificate else None
    port = Port(number, app.state.goes_on, known, trusting)
    try:
        async with asyncio.timeout(40):
            yield port
    finally:
        for writer in port.writers:
            writer.transport.abort()
        await server.end(task)
    assert listener.fileno() == -1


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends it without an answer."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\n" + HEAD])
async def test_connection_when_it_has_no_whole_request_then_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.6)
    async with serving() as port:
        slow = await port.asked("/long?slow=1")
        lazy = await port.connect(sent)
        if sent.endswith(b"\r\n" + HEAD):
            await lazy.readuntil(b"ok")
        assert await is_closed(lazy)
        assert await port.answers()
        # An answer may take longer than a request.
        port.goes_on.set()
        assert b"two" in await slow.read()


async def test_handshake_when_it_is_never_begun_then_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 1.0)
    async with serving(files=pair(tmp_path)) as port:
        assert await is_closed(await port.connect(is_plain=True))
        assert await is_closed(await port.connect(HEAD))
        assert await port.answers()


@pytest.mark.parametrize(("sent", "is_tls"), [(b"", False), (HEAD, False), (b"", True)])
async def test_port_when_full_of_idle_connections_then_a_whole_request_is_answered(
    tmp_path: Path, sent: bytes, is_tls: bool
) -> None:
    async with serving(most=4, files=pair(tmp_path) if is_tls else None) as port:
        slow = await port.asked("/long?slow=1")
        idle = [await port.connect(sent, is_plain=True) for _ in range(8)]
        assert await port.answers()
        # Those that had waited the longest went for the others.
        assert all([await is_closed(reader) for reader in idle[:5]])
        port.goes_on.set()
        assert b"two" in await slow.read()


async def test_port_when_all_connections_are_at_work_then_one_more_is_closed() -> None:
    async with serving(most=2) as port:
        busy = [await port.asked("/long?slow=1") for _ in range(2)]
        assert not await port.answers()
        port.goes_on.set()
        assert all([b"two" in await reader.read() for reader in busy])
        assert await port.answers()


async def test_answer_when_nobody_reads_it_then_its_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "READING_S", 0.3)
    async with serving() as port:
        port.goes_on.set()
        lazy = await port.asked("/long?big=1")
        port.writers[-1].transport.pause_reading()
        # One that reads gets all of it meanwhile.
        assert len(await (await port.asked("/long?big=1")).read()) > 8 * BIG
        while port.known.count:  # noqa: ASYNC110 (nothing of a client tells of it)
            await asyncio.sleep(0.01)
        port.writers[-2].transport.resume_reading()
        with suppress(ConnectionError):
            assert len(await lazy.read()) < 8 * BIG


async def test_body_when_it_comes_too_slowly_then_is_408_and_a_steady_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.5)
    monkeypatch.setattr(connections, "REQUEST_S", 1.0)
    declared = b"Content-Type: application/x-tar\r\nContent-Length: 100000\r\n"
    head = b"POST /long HTTP/1.1\r\nHost: x\r\n" + declared + b"\r\n"
    async with serving() as port:
        steady = await port.connect(head + b"x" * 50_000)
        writer = port.writers[-1]
        stuck = await port.connect(head + b"x")
        assert (await stuck.readline()).startswith(b"HTTP/1.1 408")
        assert (await stuck.read()).endswith(b"BODY_TOO_SLOW")
        # What is there has bought it time.
        writer.write(b"x" * 50_000)
        assert (await steady.readline()).startswith(b"HTTP/1.1 200")
