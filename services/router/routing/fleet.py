"""The living rollout and env replicas of one job, as this router sees them now.

Owns connections, in-flight counts and who failed lately. What a replica holds comes from
heartbeats, and from the replica itself when it is asked (``probe``): a new version is then known
in milliseconds.
"""

import asyncio
import itertools
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from services.router.jobs.race import end
from services.router.membership import Member, MemberStore
from services.router.routing.busy import BusyMeter
from services.router.routing.choose import UNBOUNDED, RouteCandidate
from services.router.routing.prefixes import PrefixTable
from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.clients import EnvClient, RolloutClient
from troupe.errors import TroupeError, UnavailableError
from troupe.spec import JobSpec

_ROLLOUT = ReplicaKind.REPLICA_KIND_ROLLOUT
_ENV = ReplicaKind.REPLICA_KIND_ENV
_PROBE_S = 0.02
"""Least time between two probes."""
_FIRST_SUSPICION_S = 0.25
_LONGEST_SUSPICION_S = 5.0
MAX_IN_FLIGHT = 4096
"""Candidates that one replica is sent at once: as many as the engines take."""


@dataclass(slots=True)
class Seat:
    """One life of one replica, with a connection to it. ``number`` differs in each life."""

    member: Member
    client: RolloutClient | EnvClient
    number: int
    num_in_flight: int = 0
    versions: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    versions_at: float = 0.0
    num_failures: int = 0
    suspected_until: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """Which life this is."""
        replica = self.member.replica
        return (replica.replica_id, replica.incarnation, replica.address)

    @property
    def replica_id(self) -> str:
        """Its stable name."""
        return self.member.replica.replica_id

    def candidate(self, matched: float = 0.0, limit: int = UNBOUNDED) -> RouteCandidate:
        """As ``choose`` sees it; ``matched`` is the share of the prompt that it was sent before."""
        replica = self.member.replica
        held: dict[str, Collection[int]] = dict(self.versions)
        return RouteCandidate(
            replica.replica_id,
            replica.is_serving,
            self.num_in_flight,
            held,
            matched,
            is_suspect=time.monotonic() < self.suspected_until,
            limit=limit,
        )

    def failed(self) -> None:
        """It did not answer: others are asked first for a while, longer with each failure."""
        pause_s = min(_FIRST_SUSPICION_S * 2**self.num_failures, _LONGEST_SUSPICION_S)
        self.num_failures = min(self.num_failures + 1, 16)
        self.suspected_until = time.monotonic() + pause_s

    def answered(self) -> None:
        """It answered: what failed before is over."""
        self.num_failures, self.suspected_until = 0, 0.0


@contextmanager
def unless_closed(seat: Seat) -> Generator[None]:
    """Turn the cancellation of a call whose connection was closed into UnavailableError.

    gRPC cancels the calls of a closed channel; the task that waits for one was not cancelled.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UnavailableError(f"replica {seat.replica_id} left while it was asked") from None


class Fleet:
    """Replicas of one job. ``watch`` must run for it to notice joins and losses."""

    def __init__(
        self, job_id: str, spec: JobSpec, members: MemberStore, *, refresh_s: float = 0.25
    ) -> None:
        self.job_id = job_id
        self._spec = spec
        self._members = members
        self._refresh_s = refresh_s
        self._seats: dict[tuple[str, str, str], Seat] = {}
        self._probing: asyncio.Task[None] | None = None
        self._probed_at = 0.0
        self._numbers = itertools.count()
        self.allows_newer = spec.max_staleness > 0
        self.meter = BusyMeter()
        self.prefixes = PrefixTable()

    async def watch(self) -> None:
        """Follow the membership until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._refresh_s)

    async def refresh(self) -> None:
        """Take over the membership as it is now."""
        found = await self._members.of_job(self.job_id)
        present: set[tuple[str, str, str]] = set()
        for member in found:
            if member.replica.kind not in (_ROLLOUT, _ENV):
                continue
            replica = member.replica
            key = (replica.replica_id, replica.incarnation, replica.address)
            present.add(key)
            seat = self._seats.get(key)
            if seat is None:
                seat = self._seats[key] = Seat(member, self._client(member), next(self._numbers))
            seat.member = member
            if replica.seen_at > seat.versions_at:
                seat.versions = {p.policy: set(p.loaded_versions) for p in replica.policies}
                seat.versions_at = replica.seen_at
        for key in self._seats.keys() - present:
            await self._seats.pop(key).client.close()

    async def probe(self) -> None:
        """Ask every rollout replica what it holds; concurrent callers share one round of asking."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())
        await asyncio.shield(self._probing)

    def rollouts(self) -> list[Seat]:
        """Rollout replicas, serving or not."""
        return [s for s in self._seats.values() if s.member.replica.kind == _ROLLOUT]

    def envs(self) -> list[Seat]:
        """Env replicas, serving or not."""
        return [s for s in self._seats.values() if s.member.replica.kind == _ENV]

    def take_meter(self) -> BusyMeter:
        """What was measured since the last call."""
        meter, self.meter = self.meter, BusyMeter()
        return meter

    async def close(self) -> None:
        """Close the connections."""
        if self._probing is not None:
            await end(self._probing)
        for seat in self._seats.values():
            await seat.client.close()
        self._seats.clear()

    def _client(self, member: Member) -> RolloutClient | EnvClient:
        address = member.replica.address
        if member.replica.kind == _ROLLOUT:
            return RolloutClient(address, retry_for_s=0.0)
        task = self._spec.task
        return EnvClient(address, task.name, task.params, retry_for_s=0.0)

    async def _probe(self) -> None:
        wait_s = self._probed_at + _PROBE_S - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await asyncio.gather(*(self._ask(seat) for seat in self.rollouts()))
        self._probed_at = time.monotonic()

    async def _ask(self, seat: Seat) -> None:
        if not isinstance(seat.client, RolloutClient):
            return
        asked_at = time.time()
        try:
            with unless_closed(seat):
                status = await seat.client.status(timeout_s=2.0)
        except TroupeError:
            return
        seat.versions = {p.policy: set(p.loaded_versions) for p in status.policies}
        seat.versions_at = asked_at
