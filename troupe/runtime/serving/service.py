"""The interface of a service that ``serve`` runs."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import grpc.aio


class Service(Protocol):
    """One service's wiring. ``serve`` calls the methods in the order in which they stand here."""

    @property
    def name(self) -> str:
        """Short name: "rollout"."""
        ...

    @property
    def grpc_services(self) -> Sequence[str]:
        """Full names of its gRPC services, for health and reflection."""
        ...

    async def connect(self) -> None:
        """Connect to dependencies; raises a TroupeError that says which one is missing."""
        ...

    def register(self, server: grpc.aio.Server) -> None:
        """Add servicers. Calls may arrive before ``warm`` returns."""
        ...

    async def warm(self, address: str) -> None:
        """Get ready to serve; ``address`` is the host:port that others reach this process at."""
        ...

    async def run(self) -> None:
        """Work in the background: returning ends the process with 0, raising with 1."""
        ...

    async def drain(self) -> None:
        """Stop taking new work and wait for what is in flight; cancelled after ``grace_s``."""
        ...

    async def close(self) -> None:
        """Close connections. Called also when ``connect`` or ``warm`` failed."""
        ...


@runtime_checkable
class ReadinessTeller(Protocol):
    """A service that may be unable to answer for a while, though it serves."""

    def is_ready(self) -> bool:
        """Asked while it serves, by /readyz of the admin port."""
        ...


@runtime_checkable
class TargetFinder(Protocol):
    """A service that knows where the other processes' /metrics are."""

    async def targets(self) -> list[dict[str, Any]]:
        """Prometheus' HTTP discovery. Raises a TroupeError when it can't tell."""
        ...
