"""The admin port: /metrics, /livez, /readyz and a router's /metrics/targets, and nothing else.

Runs on the service's event loop, so a blocked loop fails the liveness probe. Liveness never
checks a dependency.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from troupe.errors import InvalidArgumentError, TroupeError
from troupe.runtime.serving.address import split_address

_REQUEST_TIMEOUT_S = 5.0
_TARGETS_TIMEOUT_S = 3.0
"""Below the limit of the whole request, so that its caller is told."""
_TEXT = "text/plain; charset=utf-8"

Targets = Callable[[], Awaitable[list[dict[str, Any]]]]


class AdminServer:
    """A minimal HTTP/1.1 server: GET only, one request a connection."""

    def __init__(self, is_ready: Callable[[], bool], targets: Targets | None = None) -> None:
        self._is_ready = is_ready
        self._targets = targets
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> str:
        """Listen on ``address``; the bound host:port.

        Raises:
            InvalidArgumentError: ``address`` is not host:port, or the port is in use.
        """
        host, port = split_address(address, "admin_address")
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=16_384)
        except OSError as error:
            raise InvalidArgumentError(
                f"The admin server can't listen on {address} ({error.strerror}). Stop what listens "
                "there, or set the admin_address setting to another host:port."
            ) from error
        bound = self._server.sockets[0].getsockname()
        return f"{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or parts[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n")
        path = parts[1].split(b"?", 1)[0]
        if path == b"/livez":
            return _response("200 OK", b"ok\n")
        if path == b"/readyz":
            if self._is_ready():
                return _response("200 OK", b"ok\n")
            return _response("503 Service Unavailable", b"not serving\n")
        if path == b"/metrics":
            return _response("200 OK", generate_latest(), CONTENT_TYPE_LATEST)
        if path == b"/metrics/targets" and self._targets is not None:
            try:
                async with asyncio.timeout(_TARGETS_TIMEOUT_S):
                    found = json.dumps(await self._targets())
            except TimeoutError:
                return _response("503 Service Unavailable", b"the targets are not known in time\n")
            except TroupeError as error:
                return _response("503 Service Unavailable", f"{error.message}\n".encode())
            return _response("200 OK", found.encode(), "application/json")
        return _response("404 Not Found", b"try /metrics, /livez or /readyz\n")


def _response(status: str, body: bytes, content_type: str = _TEXT) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
