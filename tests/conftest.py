"""Fixtures that every area may use: free ports and a real Valkey server."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import hypothesis
import pytest
from redis.asyncio import Redis

from troupe.clients.channel import SERVER_OPTIONS
from troupe.runtime.serving.address import bind_grpc
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.runtime.streams import embedded
from troupe.runtime.streams.redis import connect

pytest_plugins = ("scheduling",)

# Machines are shared: how long an example takes says nothing.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared")

# What tests serve on loopback is not asked for by way of a proxy, also not by what they start.
for _name in ("NO_PROXY", "no_proxy"):
    _kept = [os.environ[_name]] if os.environ.get(_name) else []
    os.environ[_name] = ",".join([*_kept, "127.0.0.1", "localhost"])


def _ports() -> Iterator[int]:
    """Ports below those the kernel gives out, for each process from another place; none twice."""
    begin = os.getpid() % 200 * 50
    for number in range(10_000):
        yield 10_000 + (begin + number) % 10_000


_unused_ports = _ports()


def _free_port() -> int:
    for port in _unused_ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port of 10000 to 19999 is free on 127.0.0.1 and was not given out")


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A function that finds a free TCP port on loopback."""
    return _free_port


@dataclass
class ValkeyServer:
    """A Valkey process that a test may kill and start again on the same port and files."""

    port: int
    data_dir: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return embedded.url(self.port)

    def start(self) -> None:
        log = (self.data_dir / "valkey.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                embedded.server_argv(self.port, self.data_dir, fsync="no"), stdout=log, stderr=log
            )

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=10)
            self.process = None


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One server for the whole session; its database is emptied for each test by ``redis``."""
    server = ValkeyServer(_free_port(), tmp_path_factory.mktemp("valkey"))
    server.start()
    asyncio.run(_wait_until_up(server))
    yield server
    server.stop()


@pytest.fixture
def own_valkey_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server of this test alone, to be killed at will."""
    server = ValkeyServer(_free_port(), tmp_path)
    server.start()
    asyncio.run(_wait_until_up(server))
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey_server: ValkeyServer) -> str:
    """URL of the session's server."""
    return valkey_server.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client on an empty database."""
    client = await connect(redis_url, connect_for_s=10)
    await client.flushall()
    yield client
    await client.aclose()


async def _wait_until_up(server: ValkeyServer) -> None:
    client = await connect(server.url, connect_for_s=20)
    found = await client.info("server")
    await client.aclose()
    # Another process may have taken the port first, and serve others there.
    assert server.process is not None
    assert found["process_id"] == server.process.pid, f"another server has port {server.port}"


@pytest.fixture
async def grpc_servers() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """A function that serves ``add(server)`` on loopback and returns the address."""
    servers: list[grpc.aio.Server] = []

    async def start(add: Callable[[grpc.aio.Server], None], address: str = "127.0.0.1:0") -> str:
        server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
        add(server)
        port = bind_grpc(server, address)
        await server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(None)
