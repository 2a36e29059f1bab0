"""The life of every service process: start in order, serve, drain with a deadline, exit.

Owns signals, the gRPC server, health, reflection, the admin port and the exit status. Never knows
what a service does.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from pydantic import ValidationError

from troupe.clients.channel import RECEIVED_BYTES, SERVER_OPTIONS
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.runtime.launch.launcher import EXIT_CONFIGURATION
from troupe.runtime.serving.address import bind_grpc, reachable_host, split_address
from troupe.runtime.serving.admin import AdminServer
from troupe.runtime.serving.authorization import CallerInterceptor
from troupe.runtime.serving.disconnects import quiet_gone_callers
from troupe.runtime.serving.event_loop_watchdog import EventLoopWatchdog
from troupe.runtime.serving.forced_exit import exit_within
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.runtime.serving.membership import ShouldExit
from troupe.runtime.serving.memory import settle_heap
from troupe.runtime.serving.service import ReadinessTeller, Service, TargetFinder
from troupe.runtime.serving.settings import ServingSettings
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import configure_logging, get_logger
from troupe.runtime.telemetry.tracing import configure_tracing, server_interceptors
from troupe.runtime.tls import configured

_log = get_logger(__name__)
_S = TypeVar("_S", bound=ServingSettings)
_STATUS = health_pb2.HealthCheckResponse

EXIT_FAILED = 1
"""Exit status of a failure that may pass: a restart can help."""


def main(
    name: str,
    settings_type: type[_S],
    build: Callable[[_S], Service],
    *,
    exit_s: float | None = None,
) -> int:
    """Body of a service's ``__main__``: settings, logging, ``serve``; the exit status."""
    try:
        settings = settings_type()
    except ValidationError as error:
        prefix = str(settings_type.model_config.get("env_prefix", "TROUPE_"))
        faults = "; ".join(
            (f"{prefix}{'_'.join(map(str, e['loc'])).upper()}: " if e["loc"] else "")
            + e["msg"].removeprefix("Value error, ")
            for e in error.errors()
        )
        message = f"The settings are wrong: {faults}. Correct the environment."
        return _refuse(name, InvalidArgumentError(message))
    configure_logging(name, level=settings.log_level)
    quiet_gone_callers()
    try:
        configure_tracing(name)
        service = build(settings)
    except TroupeError as error:
        return _refuse(name, error)
    return serve(service, settings, exit_s=exit_s)


def serve(service: Service, settings: ServingSettings, *, exit_s: float | None = None) -> int:
    """Run ``service`` until it ends or a signal comes; the exit status of the process.

    0 after a drain or when ``run`` returned or raised ShouldExit; 3 when the configuration is
    wrong (InvalidArgumentError, one paragraph on stderr); 1 when start-up failed for another
    reason, such as a Redis that does not answer, or background work died.

    ``exit_s`` is for a service that runs others' code in threads: the whole process ends with that
    status so long after its service closed, whatever hangs.
    """

    async def live() -> int:
        status = EXIT_FAILED
        try:
            status = await Life(service, settings).live()
        finally:
            if exit_s is not None:
                exit_within(exit_s, status)
        return status

    return asyncio.run(live())


def replica_name(settings: ServingSettings, service: str) -> str:
    """The configured replica_id, or one made from service, host and process."""
    return settings.replica_id or f"{service}-{socket.gethostname()}-{os.getpid()}"


class Life:
    """One run of a service, from start-up to exit."""

    def __init__(self, service: Service, settings: ServingSettings) -> None:
        self._service = service
        self._settings = settings
        self._stop = asyncio.Event()
        self._is_serving = False
        targets = service.targets if isinstance(service, TargetFinder) else None
        self._admin = AdminServer(self._is_ready, targets)
        self._health: Any = cast("Any", health).aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def live(self) -> int:
        """Start, serve and drain; the exit status."""
        self._catch_signals()
        pulse = EventLoopWatchdog()
        pulse.start()
        try:
            return await self._start_and_serve()
        except ShouldExit as reason:
            _log.info("service.over", reason=str(reason))
            return 0
        finally:
            await self._shut_down()
            pulse.stop()

    async def _start_and_serve(self) -> int:
        try:
            if not await self._until_stopped(self._start()):
                return 0
        except TroupeError as error:
            return _refuse(self._service.name, error)
        await self._set_serving(True)
        try:
            if await self._until_stopped(self._service.run()):
                _log.info("service.finished")
                await self._quiesce()
        except ShouldExit as reason:
            _log.info("service.over", reason=str(reason))
            await self._quiesce()
        except Exception as error:
            _log.error("service.died", exc_info=error)
            if isinstance(error, TroupeError):
                return _refuse(self._service.name, error)
            return 1
        return 0

    async def _start(self) -> None:
        settings = self._settings
        host, _ = split_address(settings.grpc_address, "grpc_address")
        tls = configured()
        await self._service.connect()
        guards = [ErrorInterceptor(), *([CallerInterceptor()] if tls is not None else [])]
        server = grpc.aio.server(
            interceptors=[*server_interceptors(), *guards],
            options=[*SERVER_OPTIONS, (RECEIVED_BYTES, settings.max_request_bytes)],
            maximum_concurrent_rpcs=settings.max_calls,
        )
        self._service.register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [*self._service.grpc_services, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server)
        await self._set_serving(False)
        port = bind_grpc(server, settings.grpc_address, tls)
        await server.start()
        self._server = server
        admin = await self._admin.start(settings.admin_address)
        address = f"{settings.advertise_host or reachable_host(host)}:{port}"
        # What the process tells the router of itself: the port that was bound, not the one asked.
        admin_host, admin_port = split_address(admin, "admin_address")
        admin_host = settings.advertise_host or reachable_host(admin_host)
        settings.admin_address = f"{admin_host}:{admin_port}"
        _log.info("service.listening", address=address, admin=admin, tls=tls is not None)
        await self._service.warm(address)
        settle_heap()

    async def _until_stopped(self, work: Awaitable[None]) -> bool:
        """Whether ``work`` ended before a signal came; its error is raised."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await self._quiesce()
                return False
            task.result()
            return True
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _quiesce(self) -> None:
        """After a signal: take no more work, let what is in flight end."""
        was_serving = self._is_serving
        await self._set_serving(False)
        if was_serving:
            await self._drain()

    async def _drain(self) -> None:
        self._stop.clear()
        again = asyncio.ensure_future(self._stop.wait())
        drain = asyncio.ensure_future(self._service.drain())
        done, _ = await asyncio.wait(
            {again, drain}, timeout=self._settings.grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        if drain not in done:
            _log.warning("service.drain_cut_short", grace_s=self._settings.grace_s)
        again.cancel()
        drain.cancel()
        for outcome in await asyncio.gather(again, drain, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error("service.drain_failed", exc_info=outcome)

    async def _shut_down(self) -> None:
        await self._set_serving(False)
        if self._server is not None:
            await self._server.stop(grace=min(1.0, self._settings.grace_s))
        try:
            async with asyncio.timeout(5.0):
                await self._service.close()
        except Exception as error:
            _log.error("service.close_failed", exc_info=error)
        await self._admin.stop()
        _log.info("service.closed")

    def _is_ready(self) -> bool:
        service = self._service
        return self._is_serving and (not isinstance(service, ReadinessTeller) or service.is_ready())

    async def _set_serving(self, is_serving: bool) -> None:
        self._is_serving = is_serving
        metrics.IS_SERVING.labels(self._service.name).set(is_serving)
        status = _STATUS.SERVING if is_serving else _STATUS.NOT_SERVING
        for name in ("", *self._service.grpc_services):
            await self._health.set(name, status)
        if is_serving:
            _log.info("service.serving")

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, self._stop.set)


def _refuse(name: str, error: TroupeError) -> int:
    """Report why the process ends; 3 tells a launcher that a restart would fail again."""
    print(f"troupe {name}: {error.message}", file=sys.stderr, flush=True)
    return EXIT_CONFIGURATION if isinstance(error, InvalidArgumentError) else EXIT_FAILED
