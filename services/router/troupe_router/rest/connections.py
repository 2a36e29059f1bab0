"""Connections of the REST port: how many there may be, and how long each may wait for its client.

Owns both limits, which hold before anybody is authenticated and from the moment a connection is
taken, a TLS handshake included. What a request's body may take is known to ``bodies``.
"""

import os
import resource
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)
REQUEST_S = 20.0
"""Longest wait for a connection's first request, and for each further one."""
READING_S = 120.0
"""Longest time in which a client takes nothing of an answer that is on its way."""
_MOST = 10_000
_ENDING_S = 1.0
"""An ended connection is closed within a round of the event loop; none is waited for longer."""
_LOG_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class _Unread:
    """Bytes of an answer that the client had not taken at a time, and what it has not now."""

    since: float
    size: int
    left: Callable[[], int]


def most_connections() -> int:
    """How many connections a process takes: three quarters of the descriptors that it may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(1, min(_MOST, soft * 3 // 4))


class Connections:
    """The open connections of one port, each known by its descriptor.

    Where one more is too many, the one that has waited for its client the longest is ended for it,
    so that idle ones keep nobody out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[int, socket.socket] = {}
        # Since when, the oldest first.
        self._silent: dict[int, float] = {}
        self._unread: dict[int, _Unread] = {}
        self._ended: dict[int, float] = {}
        self._logged_at = -_LOG_EVERY_S

    @property
    def count(self) -> int:
        """Connections that are open."""
        return len(self._open)

    @property
    def is_ending(self) -> bool:
        """Whether one was ended that still has its descriptor."""
        now = time.monotonic()
        return any(now - at < _ENDING_S for at in self._ended.values())

    def enter(self, connection: socket.socket) -> bool:
        """Know a new connection; False: it is one too many."""
        if self.count > self._most or (self.count == self._most and not self._has_room()):
            return False
        number = connection.fileno()
        self._open[number] = connection
        self._silent[number] = time.monotonic()
        return True

    def leave(self, number: int) -> None:
        """A connection is closed."""
        for known in (self._open, self._silent, self._unread, self._ended):
            known.pop(number, None)

    def has_asked(self, number: int) -> None:
        """The head of a request is there; the answer to it may take any time."""
        self._silent.pop(number, None)

    def is_answered(self, number: int) -> None:
        """The next request is waited for, once the client has read what was there."""
        self._silent.pop(number, None)
        if number in self._open and number not in self._unread:
            self._silent[number] = time.monotonic()

    def stalls(self, number: int, left: Callable[[], int]) -> None:
        """The client does not read as fast as it is answered; ``left``: bytes that it has not."""
        if number in self._open:
            self._unread[number] = _Unread(time.monotonic(), left(), left)

    def flows(self, number: int) -> None:
        """It has read most of what was there."""
        self._unread.pop(number, None)

    def sweep(self) -> None:
        """End the connections that have waited for too long."""
        now = time.monotonic()
        while self._silent and now - self._silent[first := next(iter(self._silent))] > REQUEST_S:
            self._end(first)
        while self._unread:
            number, seen = next(iter(self._unread.items()))
            if now - seen.since <= READING_S:
                return
            if (left := self._unread.pop(number).left()) < seen.size:
                self._unread[number] = _Unread(now, left, seen.left)
            else:
                self._end(number)

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now - self._logged_at > _LOG_EVERY_S:
            self._logged_at = now
            _log.warning("rest.connections_full", most=self._most)
        oldest = next(iter(self._silent), next(iter(self._unread), None))
        if oldest is None:
            return False
        self._end(oldest)
        return True

    def _end(self, number: int) -> None:
        """Whoever serves the connection reads its end, and closes it."""
        self._silent.pop(number, None)
        self._unread.pop(number, None)
        self._ended[number] = time.monotonic()
        try:
            self._open[number].shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the client was faster


class _Connection(socket.socket):
    """A connection that tells of its end."""

    known: Connections | None = None

    def close(self) -> None:
        """Forgotten first: the number may be another's as soon as it is free."""
        if self.known is not None:
            self.known.leave(self.fileno())
        super().close()


class Listener(socket.socket):
    """Takes the connections of ``original`` within the bound; the end of one is that of both."""

    def __init__(self, original: socket.socket, connections: Connections) -> None:
        number = os.dup(original.fileno())
        super().__init__(original.family, original.type, original.proto, number)
        self._original = original
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; raises ConnectionAbortedError for one too many, which is closed."""
        if self._connections.is_ending:
            raise BlockingIOError  # asyncio, which takes many at once, is to close that one first
        taken, address = super().accept()
        connection = _Connection(taken.family, taken.type, taken.proto, taken.detach())
        if not self._connections.enter(connection):
            connection.close()
            raise ConnectionAbortedError("too many connections")
        connection.known = self._connections
        return connection, address

    def close(self) -> None:
        """Close both."""
        self._original.close()
        super().close()


class RestConnection(HttpToolsProtocol):
    """uvicorn's HTTP, which tells ``connections`` what is waited for."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._known = connections

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; those of half a head change nothing."""
        super().data_received(data)
        if not self._is_idle:
            self._known.has_asked(self._number)

    def on_response_complete(self) -> None:
        """The next request of several that came together may have begun."""
        super().on_response_complete()
        if self._is_idle:
            self._known.is_answered(self._number)

    def pause_writing(self) -> None:
        """The client is slow."""
        super().pause_writing()
        self._known.stalls(self._number, self.transport.get_write_buffer_size)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._known.flows(self._number)
        if self._is_idle:
            self._known.is_answered(self._number)

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle  # None before the first
        return cycle is None or cycle.response_complete

    @property
    def _number(self) -> int:
        """The descriptor; -1 once it is closed."""
        found: socket.socket | None = self.transport.get_extra_info("socket")
        return -1 if found is None else found.fileno()
