"""Builds and wires the router: Redis, RouterService, REST, the job supervisor and the players."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import grpc.aio
from redis.asyncio import Redis
from redis.exceptions import RedisError

from troupe.aio import cancel_all
from troupe.api.router.v1 import router_pb2_grpc
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.serving import replica_name
from troupe.runtime.streams.memory import RedisMemory
from troupe.runtime.streams.redis import connect
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_of_code
from troupe_router.conduct.controller import ControllerParts
from troupe_router.conduct.dry_runs import DryRuns
from troupe_router.conduct.launching import Launching
from troupe_router.conduct.run_folder_keeper import RunFolderKeeper
from troupe_router.conduct.supervisor import JobSupervisor
from troupe_router.jobs.bundles import BundleStore
from troupe_router.jobs.checks import check_runs_dir
from troupe_router.jobs.job_bundles import JobBundles
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.gauges import keep_counting
from troupe_router.members.registry import Registry
from troupe_router.members.scrape_targets import scrape_targets
from troupe_router.members.store import MemberStore
from troupe_router.play.job_player import PlayOptions
from troupe_router.play.players import Players
from troupe_router.rest.access.api_keys import KeyStore
from troupe_router.rest.access.certificate import RestCertificate
from troupe_router.rest.access.listen import bind, check_listen_address
from troupe_router.rest.app import create_app
from troupe_router.rest.event_fanout import EventFanout
from troupe_router.rest.parts import RestParts
from troupe_router.rest.server import RestServer
from troupe_router.servicer import RouterServicer
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)
_DISK_S = 1.0
_FEED_CONNECTIONS = 128
"""For the readers of events; where more jobs are followed, they take turns."""


class RouterApp:
    """The router as a Service."""

    name = "router"
    grpc_services: Sequence[str] = ("troupe.api.router.v1.RouterService",)

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._disk = DiskSpace(settings.runs_dir, needed_bytes=settings.min_free_bytes)
        self._memory = RedisMemory()
        self._redis: Redis | None = None
        self._feeds: Redis | None = None
        self._socket: socket.socket | None = None
        self._certificate: RestCertificate | None = None
        self._rest: RestServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._supervisor: JobSupervisor | None = None
        self._players: Players | None = None
        self._fanout: EventFanout | None = None
        self._keeper: RunFolderKeeper | None = None
        self._holder = replica_name(settings, "router")
        self._launching = Launching(settings, holder=self._holder)

    async def connect(self) -> None:
        """Connect to Redis, and check that the run folder and the port are usable."""
        await asyncio.to_thread(check_runs_dir, self._settings.runs_dir)
        check_listen_address(self._settings)
        if self._settings.tls_certificate and self._settings.tls_key:
            self._certificate = RestCertificate(
                self._settings.tls_certificate, self._settings.tls_key
            )
        self._keys = KeyStore(self._settings.api_keys)
        self._socket = bind(self._settings.rest_address, "TROUPE_ROUTER_REST_ADDRESS")
        self._redis = await connect(self._settings.redis_url)
        self._feeds = await connect(self._settings.redis_url, max_connections=_FEED_CONNECTIONS)
        self._store = JobStore(self._redis)
        self._members = MemberStore(self._redis, ttl_s=self._settings.replica_ttl_s)

    def register(self, server: grpc.aio.Server) -> None:
        """Add RouterService."""
        registry = Registry(self._connected(), self._store, self._members)
        bundles = JobBundles(BundleStore(self._settings), self._store)
        router_pb2_grpc.add_RouterServiceServicer_to_server(
            RouterServicer(registry, bundles), server
        )

    async def targets(self) -> list[dict[str, Any]]:
        """See ``TargetFinder``."""
        return await scrape_targets(self._members)

    async def warm(self, address: str) -> None:
        """Open REST; ``address`` is what a job's processes register at."""
        redis, settings = self._connected(), self._settings
        launcher = await self._launching.start(self._store.unfinished_ids)
        dry_runs = DryRuns(settings, self._members, launcher, address)
        await dry_runs.sweep()
        limits = self._keys.replica_limits
        parts = ControllerParts(
            settings,
            redis,
            self._store,
            self._members,
            launcher,
            address,
            self._disk,
            limits,
            self._memory,
        )
        assert self._feeds is not None, "connect() comes first"
        self._fanout = EventFanout(
            redis,
            self._store,
            blocking=self._feeds,
            max_streams=settings.max_streams,
            max_of_caller=settings.max_streams_per_caller,
        )
        self._supervisor = JobSupervisor(parts, holder=self._holder)
        if settings.players == "inside":
            options = PlayOptions(
                self._holder,
                settings.claim_idle_s,
                settings.generate_calls,
                settings.series_linger_s,
            )
            self._players = Players(redis, self._store, self._members, options)
        rest_parts = RestParts(
            settings=settings,
            redis=redis,
            store=self._store,
            commands=JobCommands(settings, redis, self._store, limits),
            members=self._members,
            fanout=self._fanout,
            is_ready=self._is_ready,
            disk=self._disk,
            memory=self._memory,
            keys=self._keys,
            dry_runs=dry_runs,
        )
        self._keeper = RunFolderKeeper(
            self._store, rest_parts.importing, rest_parts.pruning, settings
        )
        await self._keeper.start()
        app = create_app(rest_parts)
        self._rest = RestServer.of(app, settings.tls_certificate, settings.tls_key)
        assert self._socket is not None
        self._serving = await self._rest.begin(self._socket)

    async def run(self) -> None:
        """Conduct and play jobs and serve REST until cancelled; the end of any ends the process."""
        assert self._supervisor is not None and self._serving is not None
        assert self._keeper is not None and self._rest is not None
        every_s = self._settings.watch_s
        works = [
            self._supervisor.run(),
            keep_counting(self._store, self._members, every_s=every_s),
            self._keeper.run(),
            self._watch_disk(),
            self._watch_memory(),
        ]
        if self._players is not None:
            works.append(self._players.run())
        if self._certificate is not None and (context := self._rest.config.ssl) is not None:
            works.append(self._certificate.follow(context))
        working = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait({*working, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (*working, self._serving):
                if task.done():
                    task.result()
        finally:
            await cancel_all(*working)

    async def _watch_disk(self) -> None:
        """Measure the room for run folders each second."""
        while True:
            try:
                await asyncio.to_thread(self._disk.look)
            except Exception as error:
                if not isinstance(error, OSError) and is_of_code(error):
                    raise
                _log.warning("disk.not_measured", error=str(error))
            metrics.RUNS_FREE_BYTES.set(self._disk.free_bytes)
            metrics.RUNS_SIZE_BYTES.set(self._disk.total_bytes)
            await asyncio.sleep(_DISK_S)

    async def _watch_memory(self) -> None:
        """Measure the room in Redis each second, and note whether it answers."""
        while True:
            try:
                await self._memory.look(self._connected())
            except Exception as error:
                if is_of_code(error):
                    raise
                metrics.REDIS_UNREACHABLE.set(1)
                _log.warning("redis.not_measured", error=str(error))
            else:
                metrics.REDIS_UNREACHABLE.set(0)
            metrics.REDIS_USED_BYTES.set(self._memory.used_bytes)
            metrics.REDIS_LIMIT_BYTES.set(self._memory.limit_bytes)
            await asyncio.sleep(_DISK_S)

    async def drain(self) -> None:
        """Stop playing and conducting; end the processes that this router launched."""
        if self._players is not None:
            await self._players.close()
        if self._supervisor is not None:
            await self._supervisor.drain()

    async def close(self) -> None:
        """Close REST and connections."""
        if self._supervisor is not None:
            await self._supervisor.close()
        await self._launching.close()
        if self._fanout is not None:
            await self._fanout.close()
        if self._rest is not None and self._serving is not None:
            await self._rest.end(self._serving)
        if self._socket is not None:
            self._socket.close()
        for redis in (self._feeds, self._redis):
            if redis is not None:
                await redis.aclose()

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
