"""Certificates, and a TLS door in front of a real Valkey, whose pip-installed build has no TLS."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

from troupe.runtime.tls import Role
from troupe.runtime.tls.certificates import Authority

LOOPBACK = ("localhost", "127.0.0.1")


def issue(authority: Authority, roles: Sequence[Role], folder: Path) -> dict[str, str]:
    """A certificate in ``folder``, and the environment of a process that holds it."""
    hosts = LOOPBACK if "redis" in roles else ()
    authority.issue(roles, folder, hosts=hosts)
    return environment(folder)


def environment(folder: Path) -> dict[str, str]:
    return {
        "TROUPE_TLS_CA": str(folder / "ca.crt"),
        "TROUPE_TLS_CERT": str(folder / "tls.crt"),
        "TROUPE_TLS_KEY": str(folder / "tls.key"),
    }


class TlsDoor:
    """Asks for a client certificate and forwards to ``port``; what stunnel does."""

    def __init__(self, port: int, folder: Path) -> None:
        self._port = port
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.serials: list[str] = []
        """Serial number of each client certificate that came in."""

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def open(self, port: int = 0) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key")
        context.load_verify_locations(self._folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=context)

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.serials.append(writer.get_extra_info("peercert")["serialNumber"])
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, up_writer}
        pumps = [
            asyncio.create_task(_pump(reader, up_writer)),
            asyncio.create_task(_pump(up_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, up_writer):
                each.transport.abort()
                self._writers.discard(each)
            self._tasks.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
