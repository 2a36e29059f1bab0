"""Builds and wires a player process: Redis and the players. Serves no gRPC method of its own."""

from collections.abc import Sequence

import grpc.aio
from redis.asyncio import Redis

from troupe.runtime.streams.redis import connect
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore
from troupe_router.play.players import Players
from troupe_router.play.settings import PlaySettings

_MEMBER_TTL_S = 5.0
"""Lifetime of heartbeats that this process would write; it writes none."""


class PlayApp:
    """The process as ``troupe.runtime.serving.serve`` runs it."""

    name = "play"
    grpc_services: Sequence[str] = ()

    def __init__(self, settings: PlaySettings) -> None:
        self._settings = settings
        self._redis: Redis | None = None
        self._players: Players | None = None

    async def connect(self) -> None:
        """Reach Redis."""
        self._redis = await connect(self._settings.redis_url)

    def register(self, server: grpc.aio.Server) -> None:
        """Nothing to add: the serving runtime adds health and reflection."""

    async def warm(self, address: str) -> None:
        """Get ready to look for running jobs."""
        assert self._redis is not None, "connect() comes first"
        members = MemberStore(self._redis, ttl_s=_MEMBER_TTL_S)
        self._players = Players(
            self._redis, JobStore(self._redis), members, self._settings.options()
        )

    async def run(self) -> None:
        """Play until cancelled."""
        assert self._players is not None
        await self._players.run()

    async def drain(self) -> None:
        """Let the running episodes end."""
        if self._players is not None:
            await self._players.drain()

    async def close(self) -> None:
        """Release the tickets still being played, and close the connection."""
        if self._players is not None:
            await self._players.close()
        if self._redis is not None:
            await self._redis.aclose()
