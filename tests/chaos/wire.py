"""A TCP proxy between two rooms that partitions, delays, throttles, resets or forgets connections.

Owns the bytes under way and nothing of what they mean. A listener stands in front of one server;
who dials it is found out by process, so that one link among many can be hit: trainer to rollout
and not router to rollout.
"""

import asyncio
import random
import socket
import struct
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar, cast

from process_tree import role_at

Trouble = Literal["", "partition", "delay", "slow", "resets"]
Link = tuple[str, str]
"""Who dials, and whom."""

CHUNK_BYTES = 16 * 1024
MAX_CHUNKS = 64
"""Chunks of one direction that are under way; more are left with the sender."""
DELAY_S, JITTER_S = 0.2, 0.1
SLOW_BYTES_PER_S = 1024
RESET_AFTER_S = (0.05, 0.8)
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: close() sends RST."""
_Chunks = asyncio.Queue[tuple[float, bytes]]
_T = TypeVar("_T")


@dataclass(eq=False)
class _Connection:
    link: Link
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    is_forgotten: bool = False

    def drop(self, *, with_reset: bool = False) -> None:
        """Close both ends, or reset them."""
        for writer in (self.near, self.far):
            if with_reset and not writer.is_closing():
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            else:
                writer.close()


@dataclass
class _State:
    """What is wrong with a link, and when each direction last carried bytes."""

    trouble: Trouble = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    carried_at: dict[str, float] = field(default_factory=lambda: {"to": 0.0, "from": 0.0})

    async def until_passable(self) -> None:
        while self.trouble == "partition":
            await self.changed.wait()


class Wire:
    """All proxied links, in a thread of its own.

    Example: ``wire.listen("redis", ("127.0.0.2", 6390), ("127.0.0.1", 6390))``, then
    ``wire.set(("trainer", "redis"), "partition")``.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._states: defaultdict[Link, _State] = defaultdict(_State)
        self._connections: set[_Connection] = set()
        self._targets: dict[str, tuple[str, int]] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def listen(self, server: str, at: tuple[str, int], target: tuple[str, int]) -> None:
        """Stand at ``at`` in front of ``server``, which listens at ``target``."""
        self._targets[server] = target
        self._call(self._listen(server, at))

    def retarget(self, server: str, target: tuple[str, int]) -> None:
        """New connections go to ``target``; those that were there are reset."""
        self._targets[server] = target
        for link in {c.link for c in list(self._connections) if c.link[1] == server}:
            self.reset(link)

    def set(self, link: Link, trouble: Trouble) -> None:
        """From now on ``trouble`` happens to the link, also to connections that are made later."""
        self._call(self._set(link, trouble))

    def reset(self, link: Link) -> int:
        """Reset the link's connections, once; how many."""
        return self._call(self._break(link))

    def forget(self, link: Link) -> int:
        """Neither read nor write its connections any more, nor close them: the peer vanished."""
        return self._call(self._forget(link))

    def has_carried(self, link: Link, after: float) -> bool:
        """Whether bytes went both ways after the instant ``after``."""
        return min(self._states[link].carried_at.values()) > after

    def heal(self) -> None:
        """Nothing is wrong any more; what was forgotten is reset."""
        for link in list(self._states):
            self.set(link, "")
        self._call(self._drop_forgotten())

    async def _listen(self, server: str, at: tuple[str, int]) -> None:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            self._spawn(self._connect(server, reader, writer))

        listening = await asyncio.start_server(take, *at, limit=CHUNK_BYTES, backlog=4096)
        self._servers.append(listening)

    async def _set(self, link: Link, trouble: Trouble) -> None:
        state = self._states[link]
        state.trouble = trouble
        state.changed.set()
        state.changed = asyncio.Event()
        if trouble == "resets":
            self._spawn(self._keep_breaking(link))

    async def _keep_breaking(self, link: Link) -> None:
        while self._states[link].trouble == "resets":
            await self._break(link)
            await asyncio.sleep(random.uniform(*RESET_AFTER_S))

    async def _break(self, link: Link) -> int:
        broken = [c for c in self._connections if c.link == link and not c.is_forgotten]
        for connection in broken:
            connection.drop(with_reset=True)
        return len(broken)

    async def _forget(self, link: Link) -> int:
        found = [c for c in self._connections if c.link == link and not c.is_forgotten]
        for connection in found:
            connection.is_forgotten = True
            for writer in (connection.near, connection.far):
                cast("asyncio.Transport", writer.transport).pause_reading()
        return len(found)

    async def _drop_forgotten(self) -> None:
        for connection in [c for c in self._connections if c.is_forgotten]:
            self._connections.discard(connection)
            connection.drop(with_reset=True)

    async def _connect(
        self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer = writer.get_extra_info("peername")[1]
        link = (await asyncio.to_thread(role_at, peer), server)
        await self._states[link].until_passable()
        try:
            back, far = await asyncio.open_connection(*self._targets[server], limit=CHUNK_BYTES)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far)
        connection = _Connection(link, writer, far)
        self._connections.add(connection)
        ways = (
            asyncio.ensure_future(self._carry(connection, reader, far, "to")),
            asyncio.ensure_future(self._carry(connection, back, writer, "from")),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            if not connection.is_forgotten:
                self._connections.discard(connection)
                connection.drop()

    async def _carry(
        self,
        connection: _Connection,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        way: str,
    ) -> None:
        """One direction, until its sender ends it or the connection breaks."""
        state = self._states[connection.link]
        chunks: _Chunks = asyncio.Queue(MAX_CHUNKS)
        delivering = asyncio.ensure_future(self._deliver(connection, sink, way, chunks))
        reading = asyncio.ensure_future(self._read(state, source, chunks))
        try:
            await asyncio.wait({reading, delivering}, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            reading.cancel()
            delivering.cancel()
            await asyncio.gather(reading, delivering, return_exceptions=True)

    async def _read(self, state: _State, source: asyncio.StreamReader, chunks: _Chunks) -> None:
        data = b"-"
        while data:
            data = await source.read(
                SLOW_BYTES_PER_S // 4 if state.trouble == "slow" else CHUNK_BYTES
            )
            await state.until_passable()
            if state.trouble == "slow":
                await asyncio.sleep(len(data) / SLOW_BYTES_PER_S)
            wait_s = random.uniform(DELAY_S - JITTER_S, DELAY_S + JITTER_S)
            due = self._loop.time() + (wait_s if state.trouble == "delay" else 0.0)
            await chunks.put((due, data))

    async def _deliver(
        self, connection: _Connection, sink: asyncio.StreamWriter, way: str, chunks: _Chunks
    ) -> None:
        state = self._states[connection.link]
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await state.until_passable()
            if connection.is_forgotten:
                await asyncio.Event().wait()
            if not data:
                return
            sink.write(data)
            await sink.drain()
            state.carried_at[way] = time.time()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        pending = list(self._tasks)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0.1)  # the loop closes sockets in its next rounds

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
