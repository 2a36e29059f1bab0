"""The client's side of gRPC over TLS: a channel that dials again when the certificate changes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from troupe.runtime.tls.files import Identity, TlsFiles
from troupe.runtime.tls.roles import Role, host_of

FINISH_S = 900.0
"""Time for the calls of a retired connection to end: an upload of weights is the longest."""

CONNECT_MS = 10_000
"""Time for one attempt to connect (gRPC calls it a back-off): on a busy machine a handshake needs
more than the 0.1 s that plain connections get."""


class RotatingChannel(grpc.aio.Channel):
    """One peer at one address, over the newest certificate.

    A call starts on the present connection and ends there; after a change of the files the next
    call makes a new connection, and the old one closes when its calls have ended.
    """

    def __init__(
        self,
        address: str,
        files: TlsFiles,
        peer: Role,
        *,
        options: Sequence[tuple[str, Any]],
        interceptors: Sequence[Any],
    ) -> None:
        self._address = address
        self._files = files
        tls_options = {
            # The certificate names the peer's role, whatever its address is.
            "grpc.ssl_target_name_override": host_of(peer),
            "grpc.min_reconnect_backoff_ms": CONNECT_MS,
        }
        self._options = list({**dict(options), **tls_options}.items())
        self._interceptors = interceptors
        self._retiring: set[asyncio.Task[None]] = set()
        self._identity = files.identity()
        self._current = self._dial(self._identity)

    def _dial(self, identity: Identity) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.cert)
        return grpc.aio.secure_channel(
            self._address, credentials, options=self._options, interceptors=self._interceptors
        )

    def present(self) -> grpc.aio.Channel:
        """The connection that a call made now uses."""
        identity = self._files.identity()
        if identity.generation != self._identity.generation:
            retired, self._current = self._current, self._dial(identity)
            self._identity = identity
            task = asyncio.get_running_loop().create_task(_retire(retired))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        return self._current

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._late("unary_unary", method, *args, **kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._late("unary_stream", method, *args, **kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._late("stream_unary", method, *args, **kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._late("stream_stream", method, *args, **kwargs)

    def _late(self, kind: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """A callable that gets the connection when it is called, not when it is created."""
        used_channel: grpc.aio.Channel | None = None
        method: Any = None

        def call(*request: Any, **options: Any) -> Any:
            nonlocal used_channel, method
            channel = self.present()
            if channel is not used_channel:
                used_channel, method = channel, getattr(channel, kind)(*args, **kwargs)
            return method(*request, **options)

        return call

    async def close(self, grace: float | None = None) -> None:
        """Close every connection; without ``grace`` calls in flight are cancelled."""
        retiring = list(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        await self._current.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._current.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._current.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.present().channel_ready()

    async def __aenter__(self) -> "RotatingChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _retire(channel: grpc.aio.Channel) -> None:
    try:
        await channel.close(FINISH_S)
    finally:
        # Cancelled while calls were in flight: they are cut as well.
        await channel.close(None)
