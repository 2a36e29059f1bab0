"""Builds and wires the router: Redis, RouterService, REST and the job supervisor."""

import asyncio
import contextlib
import socket
from collections.abc import Generator, Sequence

import grpc.aio
import uvicorn
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.router.jobs.checks import check_runs_dir
from services.router.jobs.controller import ControllerParts
from services.router.jobs.desk import Desk
from services.router.jobs.race import end
from services.router.jobs.store import JobStore
from services.router.jobs.supervisor import JobSupervisor
from services.router.membership import MemberStore
from services.router.registry import Registry
from services.router.rest.app import RestParts, create_app
from services.router.servicer import RouterServicer
from services.router.settings import RouterSettings
from troupe.api.router.v1 import router_pb2_grpc
from troupe.errors import InvalidArgumentError
from troupe.launch.local import LocalLauncher
from troupe.serving import replica_name
from troupe.streams.redis import connect


class RestServer(uvicorn.Server):
    """uvicorn without its own signal handling: the service's life has one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self.is_up.set()


class RouterApp:
    """The router as a Service."""

    name = "router"
    grpc_services: Sequence[str] = ("troupe.api.router.v1.RouterService",)

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._redis: Redis | None = None
        self._socket: socket.socket | None = None
        self._rest: RestServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._supervisor: JobSupervisor | None = None

    async def connect(self) -> None:
        """Reach Redis, and know that folder and port can be had."""
        await asyncio.to_thread(check_runs_dir, self._settings.runs_dir)
        self._socket = bind(self._settings.rest_address)
        self._redis = await connect(self._settings.redis_url)
        self._store = JobStore(self._redis)
        self._members = MemberStore(self._redis, ttl_s=self._settings.replica_ttl_s)

    def register(self, server: grpc.aio.Server) -> None:
        """Add RouterService."""
        registry = Registry(self._connected(), self._store, self._members)
        router_pb2_grpc.add_RouterServiceServicer_to_server(RouterServicer(registry), server)

    async def warm(self, address: str) -> None:
        """Open REST; ``address`` is what a job's processes register at."""
        redis, settings = self._connected(), self._settings
        is_local = settings.launcher == "local"
        launcher = LocalLauncher(settings.runs_dir, grace_s=settings.grace_s) if is_local else None
        parts = ControllerParts(settings, redis, self._store, self._members, launcher, address)
        self._supervisor = JobSupervisor(parts, holder=replica_name(settings, "router"))
        app = create_app(
            RestParts(
                redis=redis,
                store=self._store,
                desk=Desk(settings, redis, self._store),
                members=self._members,
                is_ready=self._is_ready,
                max_body_bytes=settings.max_body_bytes,
            )
        )
        config = uvicorn.Config(
            app, log_config=None, lifespan="off", timeout_graceful_shutdown=2, access_log=False
        )
        self._rest = RestServer(config)
        assert self._socket is not None
        self._serving = asyncio.create_task(self._rest.serve(sockets=[self._socket]))
        async with asyncio.timeout(30.0):
            await self._rest.is_up.wait()

    async def run(self) -> None:
        """Conduct jobs and serve REST until cancelled; the end of either ends the process."""
        assert self._supervisor is not None and self._serving is not None
        conducting = asyncio.create_task(self._supervisor.run())
        try:
            await asyncio.wait({conducting, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (conducting, self._serving):
                if task.done():
                    task.result()
        finally:
            await end(conducting)

    async def drain(self) -> None:
        """Stop conducting; end the processes that this router launched."""
        if self._supervisor is not None:
            await self._supervisor.drain()

    async def close(self) -> None:
        """Close REST and connections."""
        if self._supervisor is not None:
            await self._supervisor.close()
        if self._rest is not None and self._serving is not None:
            self._rest.should_exit = True
            await asyncio.wait({self._serving}, timeout=4.0)
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        if self._redis is not None:
            await self._redis.aclose()

    def _connected(self) -> Redis:
        assert self._redis is not None, "connect() comes first"
        return self._redis

    async def _is_ready(self) -> bool:
        try:
            async with asyncio.timeout(2.0):
                await self._connected().execute_command("PING")
        except (RedisError, TimeoutError):
            return False
        return True


def bind(address: str) -> socket.socket:
    """A listening socket; raises InvalidArgumentError when the address can't be had."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.create_server((host or "127.0.0.1", int(port)), backlog=256)
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the REST port {address} cannot be opened ({error}); another router or program may "
            "use it: stop that, or set TROUPE_ROUTER_REST_ADDRESS to another host:port"
        ) from error
    found.setblocking(False)
    return found
