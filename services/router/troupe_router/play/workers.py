"""Episode workers: claim tickets, play many episodes at once, complete or drop each.

Owns claims and retries of tickets. After a machine's failure a ticket is retried, then dropped
and counted; it is never a reward. A delivery is not a failure: a worker may die at any moment.
While Redis is unavailable, plays continue and their results are kept. What this process lacks for a
while (room in its queue, memory, threads, descriptors) is awaited and counts as no failure.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar

from google.protobuf.message import DecodeError
from redis.asyncio import Redis
from structlog.contextvars import bound_contextvars

from troupe.aio import cancel_all, first_to_end
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.busy import BusyMeter, measured
from troupe.episodes.groups import for_trainer
from troupe.episodes.player import EpisodePlayer, Played
from troupe.errors import OverloadedError, TroupeError, UnavailableError
from troupe.retry import Backoff, retry
from troupe.runtime.faults import reached
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer, Entry
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.retry import until_redis_answers
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.telemetry.tracing import round_span
from troupe.runtime.transient import is_transient
from troupe.spec.job import LimitsSpec
from troupe.tasks.program_ends import end_of_error
from troupe_router.play.next_round import NextRound
from troupe_router.play.tail_cuts import TailCut, TailCuts

_log = get_logger(__name__)
_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_DELIVERIES_AN_ATTEMPT = 3
"""A ticket that was delivered this many times ``max_attempts`` kills its workers: it is dropped."""
REDIS_AWAY_S = 300.0
"""How long a command waits for Redis; then the ticket is left to the next worker that claims it."""
_RELEASE_S = 2.0


class EpisodeWorkers:
    """Plays tickets of one job, alongside the workers of any number of other processes.

    ``name`` begins the name under which Redis knows this consumer.
    """

    def __init__(
        self,
        redis: Redis,
        job_id: str,
        player: EpisodePlayer,
        limits: LimitsSpec,
        *,
        claim_idle_s: float,
        max_staleness: int = 0,
        name: str = "worker",
        redis_away_s: float = REDIS_AWAY_S,
        next_round: NextRound | None = None,
    ) -> None:
        self._next_round = next_round
        self._max_staleness = max_staleness
        self._redis_away_s = redis_away_s
        # A ticket that is delivered for so long each time outlives the step's time limit.
        self._lacking_s = limits.step_timeout_s / (_DELIVERIES_AN_ATTEMPT * limits.max_attempts)
        self._job_id = job_id
        self._player = player
        self._limits = limits
        self._claim_idle_s = claim_idle_s
        self._ledger = StepLedger(redis, job_id)
        self._cuts = TailCuts(self._ledger, limits.tail_timeout_s)
        self._consumer = Consumer(
            redis,
            keys.tickets(job_id),
            keys.WORKERS_GROUP,
            f"{name}-{uuid.uuid4().hex[:12]}",
            claim_idle_s=claim_idle_s,
            max_attempts=_DELIVERIES_AN_ATTEMPT * limits.max_attempts,
            makes_stream=False,
        )
        metrics.start_at_zero(metrics.ROUTER_TICKETS, [job_id], ["done", "dropped"])
        self._held: set[str] = set()
        self._freed = asyncio.Event()
        self._is_draining = False

    async def run(self) -> None:
        """Claim and play until cancelled; raises the first error that is not a play's.

        Tickets being played then are released, for others to claim at once.
        """
        plays: set[asyncio.Task[None]] = set()
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(play: asyncio.Task[None]) -> None:
            plays.discard(play)
            error = None if play.cancelled() else play.exception()
            if error is not None and not failing.done():
                failing.set_exception(error)

        async def fail() -> None:
            await failing

        def begin(entry: Entry) -> None:
            self._held.add(entry.id)
            play = asyncio.create_task(self._work(entry))
            plays.add(play)
            play.add_done_callback(ended)

        try:
            await first_to_end(self._claim(begin), self._keep(), self._cuts.watch(), fail())
        finally:
            unplayed = set(self._held)
            await cancel_all(*plays)
            if self._next_round is not None:
                await self._next_round.close()
            await self._release(unplayed)

    async def drain(self) -> None:
        """Claim no more tickets, and wait until those being played have ended."""
        self._is_draining = True
        while self._held:
            self._freed.clear()
            await self._freed.wait()

    async def _claim(self, begin: Callable[[Entry], None]) -> NoReturn:
        while True:
            free = self._limits.episodes_in_flight - len(self._held)
            if free <= 0 or self._is_draining:
                self._freed.clear()
                await self._freed.wait()
                continue
            read = partial(self._read, min(free, 64))
            entries = [e for e in await self._ask(read, "tickets") if e.id not in self._held]
            if self._is_draining:  # draining began while this read waited
                await self._release({entry.id for entry in entries})
                continue
            for entry in entries:
                begin(entry)

    async def _read(self, count: int) -> list[Entry]:
        try:
            return await self._consumer.read(count=count, block_s=1.0)
        except TroupeError:
            self._consumer.reread()
            raise

    async def _keep(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._claim_idle_s / 3)
            await self._ask(lambda: self._consumer.keep(*self._held), "keeping of tickets")

    async def _release(self, entry_ids: set[str]) -> None:
        """Best effort: tickets that could not be released are claimed once they are idle."""
        with suppress(TroupeError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                await self._consumer.release(*entry_ids)

    async def _ask(self, command: Callable[[], Awaitable[_T]], what: str) -> _T:
        name = f"{what} of job {self._job_id}"
        ask = partial(until_redis_answers, command, name, within_s=self._redis_away_s)
        return await retry(ask, _backoff(), within_s=self._lacking_s, may_pass=_is_lack)

    async def _work(self, entry: Entry) -> None:
        in_flight = metrics.ROUTER_IN_FLIGHT.labels(self._job_id)
        in_flight.inc()
        ticket: pb.Ticket | None = None
        try:
            ticket = await self._finish(entry)
        except TroupeError as error:
            if not error.retryable:
                raise
            _log.warning("ticket.left", entry=entry.id, error=error.message)
        finally:
            in_flight.dec()
            self._held.discard(entry.id)
            self._freed.set()
        if self._next_round is not None and ticket is not None and not self._held:
            self._next_round.begin_after(ticket)

    async def _finish(self, entry: Entry) -> pb.Ticket | None:
        """Play or drop the entry's ticket; the ticket, if it was one."""
        try:
            ticket = pb.Ticket.FromString(entry.payload)
        except DecodeError as error:
            if is_transient(error):
                raise
            words = f"not a Ticket: {error}"
            await self._ask(lambda: self._consumer.park(entry, words), "parking")
            reason = f"entry {entry.id} of the tickets stream is not a Ticket; it was parked"
            await self._ask(lambda: self._ledger.fail(reason), "failure")
            return None
        if entry.is_exhausted:
            times = entry.attempts - 1
            reason = f"it was delivered {times} times and never ended"
            await self._drop(ticket, entry, reason, _Attempts())
            return ticket
        with measured() as meter:
            attempts = _Attempts(meter)
            try:
                played = await self._cuts.play(ticket, self._play(ticket, entry, attempts))
            except TailCut as cut:
                await self._drop(ticket, entry, str(cut), attempts)
                return ticket
        if played is not None:
            shortened, episode = for_trainer(played.groups), played.episode
            attempts.note_in(episode)
            reached("router.ticket_completing", ticket.round_id)
            is_first = await self._ask(
                lambda: self._ledger.complete_ticket(ticket, entry.id, shortened, episode),
                "completion of a ticket",
            )
            reached("router.ticket_completed", ticket.round_id)
            metrics.ROUTER_TICKETS.labels(self._job_id, "done").inc(is_first)
            metrics.ROUTER_EPISODE_SECONDS.labels(self._job_id).observe(played.episode.wall_s)
        return ticket

    @contextmanager
    def _observed(self, ticket: pb.Ticket) -> Generator[None]:
        """Trace one play, and put its ids into every log line."""
        place = {"split": ticket.split, "task_index": ticket.task_index}
        with (
            round_span("episode", ticket.job_id, ticket.round_id, **place),
            bound_contextvars(job_id=ticket.job_id, step=ticket.step, ticket=ticket.ticket_id),
        ):
            yield

    async def _play(self, ticket: pb.Ticket, entry: Entry, attempts: "_Attempts") -> Played | None:
        """The episode, or None when the ticket was dropped.

        A refusal by the full queue of this process is no failure: the queue empties, since every
        call in it has a deadline. Nor is what this machine lacks.

        Raises:
            UnavailableError: it lacks something for long; others may play the ticket.
        """
        num_refused, give_up_at = 0, time.monotonic() + self._lacking_s
        start = await self._next_round.start_of(ticket) if self._next_round else None
        while True:
            fresh = await self._refreshed(ticket)
            try:
                with self._observed(ticket):
                    return await self._player.play(fresh, start=start)
            except OverloadedError as error:
                refusal = error.message
            except TroupeError as error:
                attempt = await self._count_failure(ticket, error, attempts)
                if not error.retryable or attempt >= self._limits.max_attempts:
                    await self._drop(ticket, entry, _reason(error), attempts)
                    return None
                start = None
                await _pause(attempt)
                continue
            except Exception as error:
                if not is_transient(error):
                    _log.error("episode.crashed", ticket=ticket.ticket_id, exc_info=error)
                    await self._drop(ticket, entry, f"{type(error).__name__}: {error}", attempts)
                    return None
                refusal = f"this machine lacks something ({error or type(error).__name__})"
                if time.monotonic() > give_up_at:
                    raise UnavailableError(refusal) from error
            num_refused += 1
            _log.info("episode.refused", ticket=ticket.ticket_id, error=refusal)
            await _pause(num_refused)

    async def _refreshed(self, ticket: pb.Ticket) -> pb.Ticket:
        """The ticket, with the newest versions where staleness allows others than its own."""
        if not self._max_staleness or ticket.kind == pb.ROUND_KIND_EVAL:
            return ticket
        fresh = pb.Ticket()
        fresh.CopyFrom(ticket)
        versions = await self._ask(self._ledger.versions, "versions")
        for policy, version in versions.items():
            if policy in ticket.policy_versions:
                newest = min(version, ticket.step)
                fresh.policy_versions[policy] = max(newest, ticket.policy_versions[policy])
        return fresh

    async def _count_failure(
        self, ticket: pb.Ticket, error: TroupeError, attempts: "_Attempts"
    ) -> int:
        """How often playing ``ticket`` has failed, ``error`` included."""
        if end := end_of_error(error):
            attempts.program_ends[end] += 1
        failure_id = uuid.uuid4().hex
        attempt = await self._ask(
            lambda: self._ledger.count_failure(ticket, _reason(error), failure_id),
            "failure of a ticket",
        )
        _log.warning(
            "episode.failed",
            ticket=ticket.ticket_id,
            attempt=attempt,
            reason=error.reason,
            error=error.message,
        )
        return attempt

    async def _drop(
        self, ticket: pb.Ticket, entry: Entry, reason: str, attempts: "_Attempts"
    ) -> None:
        episode = pb.Episode(
            episode_id=ticket.ticket_id,
            job_id=ticket.job_id,
            round_id=ticket.round_id,
            kind=ticket.kind,
            step=ticket.step,
            task_id=f"{ticket.split}/{ticket.task_index}",
            dropped_reason=reason,
        )
        attempts.note_in(episode)
        is_first = await self._ask(
            lambda: self._ledger.drop_ticket(ticket, entry.id, episode), "dropping of a ticket"
        )
        metrics.ROUTER_TICKETS.labels(self._job_id, "dropped").inc(is_first)


@dataclass(frozen=True, slots=True)
class _Attempts:
    """What this process's attempts to play one ticket took: time, and programs that failed."""

    meter: BusyMeter = field(default_factory=BusyMeter)
    program_ends: Counter[str] = field(default_factory=Counter[str])

    def note_in(self, episode: pb.Episode) -> None:
        episode.busy.CopyFrom(self.meter.to_record())
        for end, count in self.program_ends.items():
            episode.program_ends[end] += count


def _reason(error: TroupeError) -> str:
    return f"{error.reason}: {error.message}"


def _is_lack(error: Exception) -> bool:
    """Whether this machine lacks something; a TroupeError is what another one says."""
    return not isinstance(error, TroupeError) and is_transient(error)


def _backoff() -> Backoff:
    return Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)


async def _pause(attempt: int) -> None:
    """Sleep longer after each attempt, with jitter: tickets that failed together spread out."""
    await asyncio.sleep(_backoff().pause_s(attempt))
