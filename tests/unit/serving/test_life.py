"""The life of a service: order, drain, exit status."""

import asyncio
import os
import signal

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from troupe.errors import UnavailableError
from troupe.runtime.serving import ServingSettings, ShouldExit, serve


class Recorder:
    """A service that writes down what is done to it."""

    name = "recorder"
    grpc_services = ("troupe.api.env.v1.EnvService",)

    def __init__(self, *, fails_at: str = "", error: BaseException | None = None) -> None:
        self.calls: list[str] = []
        self.fails_at = fails_at
        self.error = error
        self.health: list[int] = []

    async def _note(self, what: str) -> None:
        self.calls.append(what)
        if what == self.fails_at and self.error is not None:
            raise self.error

    async def connect(self) -> None:
        await self._note("connect")

    def register(self, server: grpc.aio.Server) -> None:
        self.calls.append("register")

    async def warm(self, address: str) -> None:
        self.address = address
        self.health.append(await self.check())
        await self._note("warm")

    async def run(self) -> None:
        self.health.append(await self.check())
        await self._note("run")

    async def drain(self) -> None:
        self.health.append(await self.check())
        await self._note("drain")

    async def close(self) -> None:
        await self._note("close")

    async def check(self) -> int:
        async with grpc.aio.insecure_channel(self.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=self.grpc_services[0])
            return (await stub.Check(request, timeout=5)).status


ALL = ["connect", "register", "warm", "run", "drain", "close"]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def settings(**kwargs) -> ServingSettings:
    return ServingSettings(grace_s=2, **kwargs)


def test_serve_when_run_returns_then_drains_and_0():
    service = Recorder()
    assert serve(service, settings()) == 0
    assert service.calls == ALL
    assert service.health == [NOT_SERVING, SERVING, NOT_SERVING]


def test_serve_when_told_to_exit_then_drains_and_0():
    service = Recorder(fails_at="run", error=ShouldExit("over"))
    assert serve(service, settings()) == 0
    assert service.calls == ALL


def test_serve_when_background_work_dies_then_1_and_closed(capfd):
    service = Recorder(fails_at="run", error=RuntimeError("dead"))
    assert serve(service, settings()) == 1
    assert service.calls[-1] == "close"


@pytest.mark.parametrize("where", ["connect", "warm"])
def test_serve_when_start_fails_then_one_paragraph_and_1(where, capfd):
    service = Recorder(fails_at=where, error=UnavailableError("No Redis at x; start it."))
    assert serve(service, settings()) == 1
    assert "run" not in service.calls
    assert service.calls[-1] == "close"
    err = capfd.readouterr().err
    assert "troupe recorder: No Redis at x; start it." in err
    assert "Traceback" not in err


class Signalled(Recorder):
    """Gets SIGTERM in ``run``; its drain may take for ever."""

    is_drain_slow = False

    async def run(self) -> None:
        self.calls.append("run")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def drain(self) -> None:
        await super().drain()
        if self.is_drain_slow:
            await asyncio.Event().wait()


@pytest.mark.parametrize("is_drain_slow", [False, True])
def test_serve_when_terminated_then_not_serving_drains_within_grace_and_0(is_drain_slow):
    service = Signalled()
    service.is_drain_slow = is_drain_slow
    assert serve(service, settings()) == 0
    assert service.calls == ALL
    assert service.health[-1] == NOT_SERVING


def test_serve_when_terminated_while_warming_then_0_without_serving():
    class Warming(Recorder):
        async def warm(self, address: str) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    service = Warming()
    assert serve(service, settings()) == 0
    assert service.calls == ["connect", "register", "close"]
