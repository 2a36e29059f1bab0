"""The endpoint that programs ask: HTTP, an answer to each call by somebody else.

Owns who may ask, and the loop. Never answers a call itself, and knows a run only by the secret in
its URL, or by a key where the URL is that of all runs. One event loop on one thread; see
``ProgramRun`` for what is shared with the threads that judge.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable

from troupe.errors import UnavailableError
from troupe.runtime.telemetry import metrics
from troupe_tasks.programs.calls import ProgramRun
from troupe_tasks.programs.connection import EndpointConnection
from troupe_tasks.programs.keys import KeyRing
from troupe_tasks.programs.settings import ANY_ADDRESS, LOOPBACK, in_url

DRAIN_ROUNDS = 6
"""Rounds of the loop in which a connection is accepted, read and dispatched."""
START_S = 10.0
STRANGER_S = 1.0
"""A connection that has said nothing for so long does not delay a run any more."""
MAX_CONNECTIONS = 1024
SWEEP_S = 1.0


class ProgramEndpoint:
    """One server for all runs of a process; safe to use from several threads.

    ``host`` is the address that it listens at, loopback without more.
    """

    def __init__(self, keep_alive_s: float, host: str = LOOPBACK) -> None:
        self.keep_alive_s = keep_alive_s
        self.port = 0
        self.keys = KeyRing()
        self._host = host
        self._young: dict[object, tuple[float, int, ProgramRun | None]] = {}
        self._open: set[asyncio.Transport] = set()
        self.num_overridden: dict[str, int] = {}
        self._runs: dict[str, ProgramRun] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="programs", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S) or not self.port:
            raise UnavailableError(f"the endpoint of agent programs did not start on {host}")

    def open(self, run: ProgramRun) -> str:
        """Serve ``run``; its base URL, which ends in /v1."""
        self._runs[run.name] = run
        host = LOOPBACK if self._host in ANY_ADDRESS else in_url(self._host)
        return f"http://{host}:{self.port}/r/{run.name}/v1"

    def shared_url(self, address: str) -> str:
        """The base URL of all runs, where a key tells whose a call is; ``address``: this host's."""
        return f"http://{in_url(address)}:{self.port}/v1"

    def accept(self, run: ProgramRun, listener: socket.socket) -> None:
        """Serve at ``listener`` too, as long as ``run`` is served."""
        starting = self._loop.create_server(
            lambda: EndpointConnection(self, self._loop, run), sock=listener.dup()
        )
        self._servers[run.name] = asyncio.run_coroutine_threadsafe(starting, self._loop).result(
            START_S
        )

    def close_run(self, run: ProgramRun) -> None:
        """Know ``run`` and its keys no more; connections that wait are closed."""
        self._runs.pop(run.name, None)
        self.keys.end(run)
        if (server := self._servers.pop(run.name, None)) is not None:
            self.call_soon(server.close)
        run.void()

    def drain(self) -> None:
        """Return when all that had arrived at the sockets before the call was read.

        Raises UnavailableError when the loop stands still.
        """
        done = asyncio.run_coroutine_threadsafe(_rounds(), self._loop)
        try:
            done.result(START_S)
        except TimeoutError as error:
            raise UnavailableError("the endpoint of agent programs stands still") from error

    def call_soon(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the loop; nothing happens once it is closed."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return

    def close(self) -> None:
        """Stop serving."""
        for run in list(self._runs.values()):
            self.close_run(run)
        self.call_soon(self._loop.stop)
        self._thread.join(START_S)

    def run_called(self, name: str) -> ProgramRun | None:
        """The run with this secret."""
        return self._runs.get(name)

    @property
    def is_full(self) -> bool:
        """Whether one more connection is too many."""
        return len(self._open) > MAX_CONNECTIONS

    def young(self, run: ProgramRun) -> list[int | None]:
        """Connections so young that their first request may be on its way: None for one of ``run``,
        the client's port for one of which nothing tells yet for which run."""
        now = time.monotonic()
        return [
            port if of is None else None
            for at, port, of in list(self._young.values())
            if now - at < STRANGER_S and (of is None or of is run)
        ]

    def entered(
        self, connection: object, transport: asyncio.Transport, port: int, run: ProgramRun | None
    ) -> None:
        """A client has connected from ``port``, by the listener of ``run`` or by that of all."""
        self._open.add(transport)
        self._young[connection] = (time.monotonic(), port, run)

    def has_asked(self, connection: object) -> None:
        """A connection's first request was read."""
        self._young.pop(connection, None)

    def has_left(self, connection: object, transport: asyncio.Transport) -> None:
        """A connection is lost."""
        self._open.discard(transport)
        self._young.pop(connection, None)

    def refuse_all(self, message: str) -> None:
        """Tell every run of a refused request that may be its own: nothing says whose it is."""
        for run in list(self._runs.values()):
            if not run.is_scripted:
                run.refuse(message)

    def count_overridden(self, names: Iterable[str]) -> None:
        """Count fields that a program set and the policy does not follow."""
        for name in names:
            self.num_overridden[name] = self.num_overridden.get(name, 0) + 1
            metrics.ENV_PROGRAM_OVERRIDDEN.labels(name).inc()

    def _sweep(self) -> None:
        """End the runs whose time is over; a thread does it, for a process takes time to end."""
        try:
            for run in list(self._runs.values()):
                if time.monotonic() > run.expires_at:
                    self.close_run(run)
                    self._loop.run_in_executor(None, run.expired)
        finally:
            self._loop.call_later(SWEEP_S, self._sweep)

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            server = loop.run_until_complete(
                loop.create_server(
                    lambda: EndpointConnection(self, loop), self._host, 0, backlog=512
                )
            )
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            self._sweep()
            loop.run_forever()
            # asyncio loses a connection that is being accepted when its server closes.
            loop.run_until_complete(_rounds())
            server.close()
            for transport in self._open:
                transport.abort()
            loop.run_until_complete(_rounds())
        finally:
            self._ready.set()
            loop.close()


async def _rounds() -> None:
    for _ in range(DRAIN_ROUNDS):
        await asyncio.sleep(0)
