"""The living rollout and env replicas of one job, as this process sees them now.

Owns connections, in-flight counts and recent failures. What a replica holds comes from
heartbeats, and from the replica itself when it is asked (``probe``): a new version is then known
in milliseconds.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

import grpc.aio
from prometheus_client import Counter

from troupe.aio import cancel_all
from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.clients import EnvClient, RolloutClient
from troupe.errors import TroupeError, UnavailableError
from troupe.retry import STEADY, Backoff
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec import JobSpec
from troupe_router.members.store import Member, MemberStore, kind_name
from troupe_router.play.routing.choose import UNBOUNDED, RouteCandidate
from troupe_router.play.routing.prefixes import PrefixTable

_log = get_logger(__name__)
_ROLLOUT = ReplicaKind.REPLICA_KIND_ROLLOUT
_ENV = ReplicaKind.REPLICA_KIND_ENV
_PROBE_S = 0.02
"""Least time between two probes, and between two looks at the membership."""
_SUSPICION = Backoff(0.25, 5.0, STEADY)
_ENV_VERSIONS = {"": {0}}
"""Env replicas hold no weights: each is asked for the same imaginary version."""
MAX_ENV_CALLS = 256
"""Calls that one env replica is sent at once: enough for all its threads."""
MAX_IN_FLIGHT = 4096
"""Candidates that one replica is sent at once: as many as the engines take."""


@dataclass(slots=True, eq=False)
class ReplicaConnection:
    """One life of one replica, with a connection to it. ``number`` differs in each life.

    ``replica_id`` is its stable name. ``versions`` is shared with the candidates that it shows.
    """

    member: Member
    client: RolloutClient | EnvClient
    number: int
    replica_id: str
    num_in_flight: int = 0
    is_serving: bool = False
    versions: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    versions_at: float = 0.0
    num_failures: int = 0
    suspected_until: float = 0.0
    _shown: RouteCandidate | None = None
    _answers: Counter = field(init=False)

    def __post_init__(self) -> None:
        self._answers = self.calls("OK")

    def calls(self, outcome: str) -> Counter:
        """The count of its calls that ended so."""
        kind = kind_name(self.member.replica)
        return metrics.ROUTER_ROUTED.labels(self.member.job_id, kind, self.replica_id, outcome)

    def candidate(self, matched: float = 0.0, limit: int = UNBOUNDED) -> RouteCandidate:
        """The replica as ``choose`` sees it; ``matched`` is the share of the prompt sent before.

        Reuses the last candidate while nothing has changed: every call looks at every replica.
        """
        is_suspect = self.suspected_until > 0.0 and time.monotonic() < self.suspected_until
        shown = self._shown
        if (
            shown is not None
            and shown.num_in_flight == self.num_in_flight
            and shown.matched == matched
            and shown.versions is self.versions
            and shown.is_serving is self.is_serving
            and shown.is_suspect is is_suspect
            and shown.limit == limit
        ):
            return shown
        shown = self._shown = RouteCandidate(
            self.replica_id,
            self.is_serving,
            self.num_in_flight,
            self.versions,
            matched,
            is_suspect=is_suspect,
            limit=limit,
        )
        return shown

    def failed(self) -> None:
        """Note a failure: others are asked first for a while, longer after each failure."""
        self.num_failures += 1
        pause_s = _SUSPICION.pause_s(self.num_failures)
        self.suspected_until = time.monotonic() + pause_s

    def answered(self) -> None:
        """Count an answer: earlier failures are forgotten."""
        self._answers.inc()
        self.num_failures, self.suspected_until = 0, 0.0


class UnlessClosed:
    """Turns the error of a call whose connection was closed into UnavailableError.

    gRPC cancels the calls of a closed channel, though the task that waits for one was not
    cancelled, and refuses to begin one: a replica may leave between its choice and the call.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: ReplicaConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        """Nothing begins."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise UnavailableError where the replica left."""
        if error is None:
            return
        replica_id = self._connection.replica_id
        if isinstance(error, grpc.aio.UsageError):
            raise UnavailableError(f"replica {replica_id} left before it was asked") from error
        task = asyncio.current_task()
        is_caller = task is not None and task.cancelling() > 0
        if isinstance(error, asyncio.CancelledError) and not is_caller:
            raise UnavailableError(f"replica {replica_id} left while it was asked") from None


class Fleet:
    """Replicas of one job. ``watch`` must run for it to notice joins and losses."""

    def __init__(
        self, job_id: str, spec: JobSpec, members: MemberStore, *, refresh_s: float = 0.5
    ) -> None:
        self.job_id = job_id
        self._spec = spec
        self._members = members
        self._refresh_s = refresh_s
        self._connections: dict[tuple[str, str, str], ReplicaConnection] = {}
        self._rollouts: list[ReplicaConnection] = []
        self._envs: list[ReplicaConnection] = []
        self._probing: asyncio.Task[None] | None = None
        self._next_look: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._looking = asyncio.Lock()
        self._looked_at = 0.0
        self._probed_at = 0.0
        self._numbers = itertools.count()
        self.allows_newer = spec.max_staleness > 0
        self.prefixes = PrefixTable()

    async def watch(self) -> None:
        """Follow the membership until cancelled; without Redis the last known one stays in use."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._refresh_s)

    async def refresh(self) -> None:
        """Load the current membership; concurrent callers share the next read.

        Thousands of calls without a replica must not each read the whole list.
        """
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look())
            self._looks.add(self._next_look)
            self._next_look.add_done_callback(self._looks.discard)
        await asyncio.shield(self._next_look)

    async def _look(self) -> None:
        async with self._looking:
            wait_s = self._looked_at + _PROBE_S - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._next_look = None  # what changes from here on, this look may miss
            try:
                members = await self._members.of_job(self.job_id)
            except TroupeError as error:
                if not error.retryable:
                    raise
                _log.warning("fleet.redis_is_away", job_id=self.job_id, error=error.message)
                return
            finally:
                self._looked_at = time.monotonic()
        await self._take_over(members)

    async def _take_over(self, members: Sequence[Member]) -> None:
        present: set[tuple[str, str, str]] = set()
        for member in members:
            if member.replica.kind not in (_ROLLOUT, _ENV):
                continue
            replica = member.replica
            key = (replica.replica_id, replica.incarnation, replica.address)
            present.add(key)
            connection = self._connections.get(key)
            if connection is None:
                client, number = self._client(member), next(self._numbers)
                connection = self._connections[key] = ReplicaConnection(
                    member, client, number, replica.replica_id
                )
                (self._rollouts if replica.kind == _ROLLOUT else self._envs).append(connection)
            connection.member, connection.is_serving = member, replica.is_serving
            if replica.kind == _ENV:
                connection.versions = _ENV_VERSIONS
            elif replica.seen_at > connection.versions_at:
                connection.versions = {p.policy: set(p.loaded_versions) for p in replica.policies}
                connection.versions_at = replica.seen_at
        gone = [self._connections.pop(key) for key in self._connections.keys() - present]
        for connection in gone:
            (self._rollouts if connection in self._rollouts else self._envs).remove(connection)
        for connection in gone:
            await connection.client.close()

    async def probe(self) -> None:
        """Ask every rollout replica what it holds; concurrent callers share one round."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())
        await asyncio.shield(self._probing)

    def rollouts(self) -> Sequence[ReplicaConnection]:
        """Rollout replicas, serving or not."""
        return self._rollouts

    def envs(self) -> Sequence[ReplicaConnection]:
        """Env replicas, serving or not; all hold version 0 of the policy ""."""
        return self._envs

    async def close(self) -> None:
        """Close the connections."""
        await cancel_all(*self._looks, *([self._probing] if self._probing is not None else []))
        for connection in self._connections.values():
            await connection.client.close()
        self._connections.clear()
        self._rollouts, self._envs = [], []

    def _client(self, member: Member) -> RolloutClient | EnvClient:
        address = member.replica.address
        if member.replica.kind == _ROLLOUT:
            return RolloutClient(address, retry_for_s=0.0)
        task, reward, bundle = self._spec.task, self._spec.reward, self._spec.bundle
        return EnvClient(
            address, task.name, task.params, reward=reward, bundle=bundle, retry_for_s=0.0
        )

    async def _probe(self) -> None:
        wait_s = self._probed_at + _PROBE_S - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await asyncio.gather(*(self._ask(connection) for connection in self.rollouts()))
        self._probed_at = time.monotonic()

    async def _ask(self, connection: ReplicaConnection) -> None:
        if not isinstance(connection.client, RolloutClient):
            return
        asked_at = time.time()
        try:
            with UnlessClosed(connection):
                status = await connection.client.status(timeout_s=2.0)
        except TroupeError:
            return
        connection.versions = {p.policy: set(p.loaded_versions) for p in status.policies}
        connection.versions_at = asked_at
