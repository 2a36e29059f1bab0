"""uvicorn as a part of a process that the serving runtime starts and stops."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp

from troupe.runtime.telemetry.tracing import traced_app
from troupe_router.rest.connections import (
    Connections,
    Listener,
    RestConnection,
    most_connections,
)

_START_S = 30.0
_CLOSE_S = 4.0


class RestServer(uvicorn.Server):
    """uvicorn without signal handling: the serving runtime does that."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._connections = connections

    @classmethod
    def of(
        cls,
        app: ASGIApp,
        certificate: Path | None,
        key: Path | None,
        connections: Connections | None = None,
    ) -> Self:
        """A server of ``app``, over TLS with a certificate."""
        connections = connections or Connections(most_connections())
        protocol: Any = partial(RestConnection, connections)
        config = uvicorn.Config(
            traced_app(app),
            http=protocol,
            ws="none",
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=2,
            access_log=False,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        return cls(config, connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then set ``is_up``."""
        await super().startup(sockets)
        self.is_up.set()

    async def on_tick(self, counter: int) -> bool:
        """What uvicorn does ten times a second; beside it, connections that wait too long end."""
        self._connections.sweep()
        return await super().on_tick(counter)

    async def begin(self, listener: socket.socket) -> asyncio.Task[None]:
        """Serve on ``listener``; the task that does, once it takes connections."""
        bounded = Listener(listener, self._connections)
        serving = asyncio.create_task(self.serve(sockets=[bounded]))
        async with asyncio.timeout(_START_S):
            await self.is_up.wait()
        return serving

    async def end(self, serving: asyncio.Task[None]) -> None:
        """Close connections and end the task of ``begin``."""
        self.should_exit = True
        await asyncio.wait({serving}, timeout=_CLOSE_S)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
