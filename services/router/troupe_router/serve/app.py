"""Builds and wires the endpoint: the team's weights, the HTTP port and its keys."""

import asyncio
import json
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import grpc.aio

from troupe.aio import cancel_all
from troupe.publishing.team_folder import TeamFolder, open_team
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.rest.access.access_control import AccessControl
from troupe_router.rest.access.api_keys import KeyStore
from troupe_router.rest.access.certificate import RestCertificate
from troupe_router.rest.access.listen import bind, check_listen_address
from troupe_router.rest.access.rate_limits import WrongKeys
from troupe_router.rest.server import RestServer
from troupe_router.serve.endpoint import ChatEndpoint
from troupe_router.serve.problems import answer_to
from troupe_router.serve.settings import ServeSettings
from troupe_router.serve.team import opened_team

_log = get_logger(__name__)
_PREFIX = "TROUPE_SERVE_"


class ServeApp:
    """The endpoint as ``troupe.runtime.serving.serve`` runs it."""

    name = "serve"
    grpc_services: Sequence[str] = ()

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._keys = KeyStore(settings.api_keys)
        self._open = AsyncExitStack()
        self._team: TeamFolder | None = None
        self._socket: socket.socket | None = None
        self._certificate: RestCertificate | None = None
        self._endpoint: ChatEndpoint | None = None
        self._server: RestServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._ends: Sequence[asyncio.Task[None]] = ()

    async def connect(self) -> None:
        """Check the address and the team's files, which takes no engine."""
        settings = self._settings
        check_listen_address(settings)
        if settings.tls_certificate and settings.tls_key:
            self._certificate = RestCertificate(settings.tls_certificate, settings.tls_key, _PREFIX)
        self._socket = bind(settings.rest_address, f"{_PREFIX}REST_ADDRESS")
        self._team = await asyncio.to_thread(open_team, settings.team, settings.checkpoint)

    def register(self, server: grpc.aio.Server) -> None:
        """Nothing to add: the serving runtime adds health and reflection."""

    async def warm(self, address: str) -> None:
        """Load the weights, then take requests."""
        assert self._team is not None and self._socket is not None
        settings = self._settings
        served = await self._open.enter_async_context(
            opened_team(self._team, settings.engine, request_timeout_s=settings.request_timeout_s)
        )
        self._ends = served.ends
        self._endpoint = ChatEndpoint(served, settings)
        app = AccessControl(
            self._endpoint.app(),
            keys=self._keys,
            rate_per_s=settings.rate_per_s,
            burst=settings.rate_burst,
            hosts=settings.host_names,
            prefix=_PREFIX,
            wrong_keys=WrongKeys(),
            answer=answer_to,
        )
        self._server = RestServer.of(app, settings.tls_certificate, settings.tls_key)
        self._serving = await self._server.begin(self._socket)
        url = self._url()
        _log.info("serve.ready", url=url, models=list(served.models), engine=settings.engine)
        line = f"{url}  models: {', '.join(served.models)}"
        if settings.prints_json:
            line = json.dumps({"url": url, "models": list(served.models)})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    async def run(self) -> None:
        """Serve until cancelled; the end of the server, or of what the team needs, ends it."""
        assert self._serving is not None
        following = asyncio.create_task(self._follow_certificate())
        try:
            needed = {self._serving, *self._ends}
            done, _ = await asyncio.wait(needed, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel_all(following)

    def is_ready(self) -> bool:
        """See ``ReadinessTeller``."""
        return self._endpoint is not None and self._endpoint.is_ready()

    async def drain(self) -> None:
        """Answer what was asked, and nothing new."""
        if self._endpoint is not None:
            await self._endpoint.queue.drain()

    async def close(self) -> None:
        """Close connections and the engine."""
        if self._server is not None and self._serving is not None:
            await self._server.end(self._serving)
        if self._socket is not None:
            self._socket.close()
        await self._open.aclose()

    def _url(self) -> str:
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"{'https' if self._certificate else 'http'}://{host}:{port}/v1"

    async def _follow_certificate(self) -> None:
        assert self._server is not None
        if self._certificate is not None and (context := self._server.config.ssl) is not None:
            await self._certificate.follow(context)
