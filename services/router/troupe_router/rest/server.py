"""uvicorn as a part of a process that the serving runtime starts and stops."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from troupe.runtime.telemetry.tracing import traced_app

_START_S = 30.0
_CLOSE_S = 4.0


class RestServer(uvicorn.Server):
    """uvicorn without signal handling: the serving runtime does that."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    @classmethod
    def of(cls, app: ASGIApp, certificate: Path | None, key: Path | None) -> Self:
        """A server of ``app``, over TLS with a certificate."""
        config = uvicorn.Config(
            traced_app(app),
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=2,
            access_log=False,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        return cls(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then set ``is_up``."""
        await super().startup(sockets)
        self.is_up.set()

    async def begin(self, listener: socket.socket) -> asyncio.Task[None]:
        """Serve on ``listener``; the task that does, once it takes connections."""
        serving = asyncio.create_task(self.serve(sockets=[listener]))
        async with asyncio.timeout(_START_S):
            await self.is_up.wait()
        return serving

    async def end(self, serving: asyncio.Task[None]) -> None:
        """Close connections and end the task of ``begin``."""
        self.should_exit = True
        await asyncio.wait({serving}, timeout=_CLOSE_S)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
