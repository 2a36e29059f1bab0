"""How gRPC calls are made: channel settings, error mapping, and which calls are retried.

Settings of servers stand beside those of clients because keepalive must match on both ends.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Self, TypeVar

import grpc
import grpc.aio

from troupe.clients.status import REASON_KEY, pointer_in
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    TroupeError,
    UnavailableError,
    VersionNotLoadedError,
    error_for_code,
    error_for_reason,
)
from troupe.retry import Backoff, is_retryable, retry
from troupe.runtime.telemetry.tracing import client_interceptors
from troupe.runtime.tls import Role, configured
from troupe.runtime.tls.channel import RotatingChannel

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
KEEPALIVE_MS = 10_000
"""A peer that vanishes silently is noticed after twice this time: a ping without an answer. The
client library accepts no lower value."""
CORE_FAILED = "Internal error from Core"
"""What gRPC for asyncio reports instead of the server's answer when it came while a stream was
still being sent (https://github.com/grpc/grpc/issues/36066)."""
_TOO_LARGE = "larger than max"
"""gRPC's own words of a message above the limit, at whichever end; its status is otherwise that of
a full queue, which a retry may find emptier."""
MAX_LOST_ANSWERS = 5
"""How often an attempt is repeated whose answer was lost: `CORE_FAILED`, or an ended connection.

It counts even for a call that is otherwise made once, and bounds nothing else."""
_BACKOFF = Backoff(0.05, 1.0)
HOST_PORT = re.compile(r"([A-Za-z0-9_.-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
"""An address of another process: gRPC's other forms (``unix:``, ``dns:``) are none of a peer's."""
_SOCKET = "unix:/"

RECEIVED_BYTES = "grpc.max_receive_message_length"
"""Channel and server option: the largest message that is received. The last value wins."""

_SIZES: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    (RECEIVED_BYTES, MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),  # else 60 s, and the longer one counts
]
SERVER_OPTIONS: list[tuple[str, int]] = [
    *_SIZES,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 4),
    ("grpc.http2.max_ping_strikes", 0),
]
CLIENT_OPTIONS: list[tuple[str, int]] = [
    *_SIZES,
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]

_T = TypeVar("_T")


class Client:
    """A connection to one address. ``retry_for_s`` bounds retries on that same address.

    Errors that are ``retryable`` are retried for idempotent calls, inside the call's deadline. The
    router's calls on behalf of episodes pass ``retry_for_s=0.0``
    (services/router/troupe_router/play/routing/fleet.py): failover.py there asks another replica
    instead. With TROUPE_TLS_* set the server must
    hold a certificate of the role ``peer``. ``is_local``: ``address`` is ``unix:`` and the path of
    a socket of this machine, whose folder says who may; never so for an address that was told.
    """

    peer: ClassVar[Role]

    def __init__(self, address: str, *, retry_for_s: float = 2.0, is_local: bool = False) -> None:
        if not (address.startswith(_SOCKET) if is_local else HOST_PORT.fullmatch(address)):
            raise InvalidArgumentError(f"{address!r} is not the host:port of a gRPC server.")
        self.address = address
        self._retry_for_s = retry_for_s
        self._channel = dial(address, self.peer, is_local=is_local)
        self._is_closed = False

    async def close(self) -> None:
        """Close the connection; calls in flight end with UnavailableError."""
        self._is_closed = True
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(
        self,
        what: str,
        attempt: Callable[[float], Awaitable[_T]],
        *,
        timeout_s: float,
        retries: bool = True,
    ) -> _T:
        """Call ``attempt`` with the remaining seconds, and repeat it while that may help."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s

        async def once() -> _T:
            left_s = deadline - now()
            if left_s <= 0:
                raise DeadlineError(f"{what} at {self.address} did not answer in {timeout_s:g} s.")
            try:
                return await attempt(left_s)
            except (grpc.aio.AioRpcError, asyncio.CancelledError) as failure:
                if _is_caller_cancelled(failure):
                    raise
                raise _error_of(failure, what, self.address) from failure

        async def until_heard() -> _T:
            most = MAX_LOST_ANSWERS + 1
            return await retry(once, _BACKOFF, max_attempts=most, may_pass=self._is_answer_lost)

        within_s = min(timeout_s, self._retry_for_s) if retries else 0.0
        return await retry(until_heard, _BACKOFF, within_s=within_s, may_pass=self._may_pass)

    def _is_answer_lost(self, error: Exception) -> bool:
        return not self._is_closed and _is_answer_lost(error.__cause__)

    def _may_pass(self, error: Exception) -> bool:
        """Whether the same address may answer later; not after a missing version, a timeout, or
        what ends an episode."""
        is_other = isinstance(error, DeadlineError | VersionNotLoadedError)
        is_other |= isinstance(error, TroupeError) and error.ends_episode
        return not self._is_closed and is_retryable(error) and not is_other


def dial(address: str, peer: Role, *, is_local: bool = False) -> grpc.aio.Channel:
    """A channel to a server of the role ``peer``: over TLS if the environment configures it.

    ``is_local``: a socket of this machine, without TLS.

    Raises:
        InvalidArgumentError: TROUPE_TLS_* is half set, or names files that can't be used.
    """
    interceptors = client_interceptors()
    if is_local or (files := configured()) is None:
        return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS, interceptors=interceptors)
    return RotatingChannel(
        address, files, peer, options=CLIENT_OPTIONS, interceptors=interceptors or ()
    )


def from_rpc_error(error: grpc.aio.AioRpcError, *, what: str, address: str) -> TroupeError:
    """The TroupeError that the server raised, or the one that fits the bare status."""
    pairs: Any = error.trailing_metadata() or ()
    trailing: dict[str, Any] = dict(pairs)
    details = error.details() or error.code().name
    cls = error_for_reason(str(trailing.get(REASON_KEY, "")))
    if cls is not None:
        return _construct(cls, details, pointer_in(trailing))
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return TroupeError(
            f"{what} at {address}: a message may have {MAX_MESSAGE_BYTES} bytes, and this one is "
            f"larger ({details}); it is no smaller when sent again. Have less in one call: fewer "
            "candidates (group_size), shorter completions or prompts, smaller states of the task."
        )
    if _is_answer_lost(error):
        return UnavailableError(
            f"{what} at {address}: the call ended before all of it was sent, and its answer got "
            "lost. Send it again."
        )
    return error_for_code(error.code())(f"{what} at {address}: {details}")


def _error_of(
    failure: grpc.aio.AioRpcError | asyncio.CancelledError, what: str, address: str
) -> TroupeError:
    if isinstance(failure, grpc.aio.AioRpcError):
        return from_rpc_error(failure, what=what, address=address)
    return UnavailableError(
        f"{what} at {address}: the connection ended the call, which nobody cancelled, and its "
        "answer got lost. Send it again."
    )


def _is_answer_lost(failure: BaseException | None) -> bool:
    if isinstance(failure, grpc.aio.AioRpcError):
        return failure.code() is grpc.StatusCode.INTERNAL and failure.details() == CORE_FAILED
    return isinstance(failure, asyncio.CancelledError)


def _is_caller_cancelled(failure: BaseException) -> bool:
    """Whether the calling task was cancelled: gRPC also cancels calls by itself.

    It does so when their channel closes, and in about one of 100,000 streams.
    """
    task = asyncio.current_task()
    is_stray = task is not None and not task.cancelling()
    return isinstance(failure, asyncio.CancelledError) and not is_stray


def _construct(cls: type[TroupeError], message: str, pointer: str | None) -> TroupeError:
    """An error of ``cls``, or of its nearest parent whose constructor takes only a message."""
    for candidate in cls.__mro__:
        if candidate.__init__ is TroupeError.__init__:
            return candidate(message, pointer=pointer)
    return TroupeError(message, pointer=pointer)
