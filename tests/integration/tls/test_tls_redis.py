"""Redis over TLS: a server that asks for a client certificate, refusals, and rotation."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tls_world import LOOPBACK, TlsDoor, issue

from tests.conftest import ValkeyServer
from troupe.errors import UnavailableError
from troupe.runtime.streams.redis import connect
from troupe.runtime.tls import Role
from troupe.runtime.tls.certificates import Authority

Become = Callable[[Role | Path | None], None]


@dataclass
class Place:
    """A Redis with TLS."""

    url: str


@pytest.fixture
async def door(valkey_server: ValkeyServer, certificates: Path) -> AsyncIterator[TlsDoor]:
    found = TlsDoor(valkey_server.port, certificates / "redis")
    await found.open()
    yield found
    await found.close()


@pytest.fixture(params=["door", "own"])
async def place(
    request: pytest.FixtureRequest,
    certificates: Path,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> AsyncIterator[Place]:
    """Valkey behind a TLS door, and a server's own TLS with the flags of the chart."""
    if request.param == "door":
        server = ValkeyServer(free_port(), tmp_path)
        server.start()
        found = TlsDoor(server.port, certificates / "redis")
        await found.open()
        yield Place(f"rediss://localhost:{found.port}/0")
        await found.close()
        server.stop()
        return
    process, port = _start_with_tls(certificates / "redis", tmp_path, free_port())
    yield Place(f"rediss://localhost:{port}/0")
    process.terminate()
    process.wait(timeout=20)


def _start_with_tls(folder: Path, home: Path, port: int) -> "tuple[subprocess.Popen[bytes], int]":
    """A server from PATH; skips with the reason where there is none that knows TLS."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        pytest.skip("no valkey-server or redis-server on PATH (the pip-installed one has no TLS)")
    files = {"cert": "tls.crt", "key": "tls.key", "ca-cert": "ca.crt"}
    flags = [part for name, file in files.items() for part in (f"--tls-{name}-file", folder / file)]
    argv = [
        program,
        "--port",
        "0",
        "--tls-port",
        str(port),
        "--bind",
        "127.0.0.1",
        *map(str, flags),
    ]
    log = (home / "redis.log").open("wb")
    with log:
        process = subprocess.Popen(
            [*argv, "--tls-auth-clients", "yes", "--dir", str(home), "--save", ""],
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + 60
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return process, port
        assert time.monotonic() < deadline, "the server neither listens nor ends"
        time.sleep(0.05)
    pytest.skip(f"{program} has no TLS: {(home / 'redis.log').read_text()[-200:]}")


@pytest.mark.parametrize("role", ["router", "trainer"])
async def test_redis_when_certificates_fit_then_commands_answer(
    place: Place, become: Become, role: Role
) -> None:
    become(role)
    client = await connect(place.url, connect_for_s=60)
    await client.set("key", b"value")
    assert await client.get("key") == b"value"
    await client.aclose()


async def test_redis_when_the_client_has_no_certificate_then_is_refused(
    place: Place, become: Become, certificates: Path
) -> None:
    become("router")
    client = await connect(place.url, connect_for_s=60)
    await client.aclose()
    become(None)
    ca = certificates / "router" / "ca.crt"
    with pytest.raises(UnavailableError, match="No Redis answers"):
        await connect(f"{place.url}?ssl_ca_certs={ca}", connect_for_s=1)


async def test_redis_when_its_certificate_is_a_strangers_then_is_not_spoken_to(
    valkey_server: ValkeyServer, become: Become, tmp_path: Path
) -> None:
    issue(Authority.create("stranger"), ["redis"], tmp_path)
    door = TlsDoor(valkey_server.port, tmp_path)
    await door.open()
    become("router")
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        await connect(f"rediss://localhost:{door.port}/0", connect_for_s=1)
    assert door.serials == []
    await door.close()


async def test_redis_when_its_certificate_names_another_host_then_is_not_spoken_to(
    valkey_server: ValkeyServer, become: Become, authority: Authority, tmp_path: Path
) -> None:
    authority.issue(["redis"], tmp_path, hosts=["elsewhere"])
    door = TlsDoor(valkey_server.port, tmp_path)
    await door.open()
    become("router")
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        await connect(f"rediss://localhost:{door.port}/0", connect_for_s=1)
    await door.close()


async def test_redis_when_certificates_are_swapped_then_the_next_connection_uses_them(
    valkey_server: ValkeyServer, become: Become, tmp_path: Path
) -> None:
    old, new = Authority.create("old"), Authority.create("new")
    mine, its = tmp_path / "mine", tmp_path / "its"
    issue(old, ["trainer"], mine)
    old.issue(["redis"], its, hosts=LOOPBACK)
    door = TlsDoor(valkey_server.port, its)
    await door.open()
    port = door.port
    become(mine)
    client = await connect(f"rediss://localhost:{port}/0", connect_for_s=60)
    assert await client.ping()
    [first] = set(door.serials)

    issue(new, ["trainer"], mine)
    new.issue(["redis"], its, hosts=LOOPBACK)
    assert await client.ping()
    assert set(door.serials) == {first}

    # The server starts again with its new certificate; the client comes back with its own.
    await door.close()
    await asyncio.sleep(0)
    again = TlsDoor(valkey_server.port, its)
    await again.open(port)
    assert await client.ping()
    assert again.serials and first not in again.serials
    await client.aclose()
    await again.close()
