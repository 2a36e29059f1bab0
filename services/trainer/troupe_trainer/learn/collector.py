"""Collects the groups of one step while its round is played.

Owns reading, validation, dedupe and acks. Groups stay pending in Redis until a checkpoint covers
them, so a restarted trainer reads them again. Never learns from them.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import JobFailedError
from troupe.ids import counted, step_of, ticket_id, ticket_position, train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer, Entry
from troupe.runtime.streams.fencing import Fence
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient
from troupe.vision.model import VisionModel
from troupe_trainer.control import Control
from troupe_trainer.learn.ahead_times import AheadTimes
from troupe_trainer.learn.patience import Patience
from troupe_trainer.learn.validation import Expected, fault

_log = get_logger(__name__)

CONSUMER = "trainer"
"""A job has one trainer; under a stable name it gets back what it held when it died."""

READ_COUNT = 256
POLL_S = 1.0
UNOPENED_S = 5.0
"""A round that is not open for so long may wait for memory of Redis."""
PER_TICKET_S = 1e-4
"""How often finished tickets are asked for: a round of 10,000 has them read once a second."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The valid groups of one step by policy, sorted by id, and the refused ones by reason.

    ``overlap_s``: for how long the step had been played when the trainer asked for it, which is how
    long playing and learning ran at the same time; 0 when strictly on-policy. ``waited_s``: for how
    long it was waited for with nothing to learn from. ``late_s``: for how long it was still learnt
    ahead when the round was over.
    """

    step: int
    groups: Mapping[str, Sequence[pb.Group]]
    dropped: Mapping[str, int]
    overlap_s: float = 0.0
    waited_s: float = 0.0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """What there is of a step that is still being played.

    ``finished``: positions of the tickets that were played or dropped, of ``num_tickets``.
    ``groups_of`` gives the valid groups of a policy that such tickets gave, sorted by id.
    """

    step: int
    num_tickets: int
    finished: Collection[int]
    groups_of: Callable[[str, Sequence[int]], Sequence[pb.Group]]


LearnAhead = Callable[[Arrived], Awaitable[bool]]
"""Learns from a part of what arrived; False: from nothing, so that there is time to wait."""

Cover = Callable[[], Awaitable[int]]
"""Writes a checkpoint of what is learnt; the number of steps that one covers."""


class Collector:
    """Collects for every policy of a job. ``vocabularies`` gives each policy's number of tokens,
    and ``vision`` how vision-language models take images. Groups of ``scored`` policies come with
    what their teachers' replicas think of each token."""

    def __init__(
        self,
        redis: Redis,
        job_id: str,
        vocabularies: Mapping[str, int],
        *,
        first_step: int,
        timeout_s: float,
        control: Control,
        max_staleness: int = 0,
        max_dropped_fraction: float = 1.0,
        fence: Fence | None = None,
        vision: Mapping[str, VisionModel | None] | None = None,
        min_candidates: int = 2,
        scored: Collection[str] = (),
    ) -> None:
        self._min_candidates = min_candidates
        self._scored = scored
        self._vision = vision or {}
        self._max_staleness = max_staleness
        self._max_dropped_fraction = max_dropped_fraction
        self._redis = redis
        self._memory = RedisMemory()
        self._job_id = job_id
        self._ledger = StepLedger(redis, job_id, fence=fence)
        self._vocabularies = vocabularies
        self._timeout_s = timeout_s
        self._control = control
        self._recorded_below = max(0, first_step - 1)  # a conductor leaves one round open, no more
        self._intakes = {
            policy: _Intake(
                redis,
                keys.groups(job_id, policy),
                fence,
                first_step=first_step,
                recorded_below=self._recorded_below,
            )
            for policy in sorted(vocabularies)
        }
        self._faults: dict[tuple[str, str], str | None] = {}
        self._finished = _Finished()

    async def collect(
        self, step: int, *, ahead: LearnAhead | None = None, cover: Cover | None = None
    ) -> Batch:
        """All groups of ``step``, once its round is complete and every group has arrived.

        Until then ``ahead`` is called with what there is, unless the job is paused. While Redis
        lacks room to open the round, ``cover`` lets the groups of earlier steps go.

        Raises:
            JobFailedError: not so within ``timeout_s`` (see `patience`) of the opening of the
                round, or more of its tickets were dropped than allowed: it is no step of this job.
            StoppedError: the job was asked to stop.
            FencedError: another trainer has taken over.
        """
        round_id, asked_at, began = train_round(step), time.time(), time.monotonic()
        learning, patience = AheadTimes(), Patience(self._timeout_s, self._ledger.conducting)
        is_open, look_at, self._finished = False, began + UNOPENED_S, _Finished()
        while True:
            self._control.raise_if_stopped()
            await self._ledger.check()
            state = await self._ledger.round(round_id)
            if ahead is not None and state is not None:
                await self._finished.update(self._ledger, state)  # before their groups are read
            await asyncio.gather(*(i.read(step) for i in self._intakes.values()))
            if state is not None and self._missing(step, state) == {}:
                # The router checks it too, but may be away, or later than the checkpoint.
                state.check_drops(self._max_dropped_fraction)
                return replace(
                    self._batch(step),
                    overlap_s=max(0.0, asked_at - state.opened_at),
                    waited_s=time.monotonic() - began - learning.seconds,
                    late_s=learning.late_s(state.completed_at),
                )
            if state is not None and not is_open:
                is_open = True
                patience.begin_anew()
            if await patience.is_over():
                raise JobFailedError(self._what_is_missing(step, state))
            if state is None and cover is not None and time.monotonic() > look_at:
                await self.make_room(cover)
                look_at = time.monotonic() + UNOPENED_S
            if state is not None and state.is_complete:
                for intake in self._intakes.values():
                    intake.reread()
            elif (
                ahead is not None
                and state is not None
                and not self._control.is_paused
                and await learning.add(ahead(self._arrived(step, state)))
            ):
                continue
            await self._ledger.wait_change(self._finished.poll_s)

    async def ack_below(self, step: int) -> None:
        """Acknowledge the entries of steps below ``step``, which a checkpoint covers.

        Groups hold images and tokens of their episodes too, so they stay until they are recorded.
        """
        self._recorded_below = await self._first_unrecorded(step)
        below = self._recorded_below
        await asyncio.gather(*(i.ack_below(step, below) for i in self._intakes.values()))

    async def make_room(self, cover: Cover) -> None:
        """While Redis lacks room for a step, ack all that was learnt; nothing else would."""
        await self._memory.look(self._redis)
        if not self._memory.has_room_for_waiting:
            await self.ack_below(await cover())

    async def _first_unrecorded(self, step: int) -> int:
        """The first step below ``step`` whose round is not recorded, else ``step``."""
        for earlier in range(self._recorded_below, step):
            state = await self._ledger.round(train_round(earlier))
            if state is not None and not state.is_recorded:
                return earlier
        return step

    def _missing(self, step: int, state: RoundState) -> dict[str, int]:
        """Counts of tickets and groups that have not arrived yet."""
        if not state.is_complete:
            return {"tickets": state.num_tickets - state.num_done - state.num_dropped}
        counts = {p: state.num_groups.get(p, 0) - i.count(step) for p, i in self._intakes.items()}
        return {policy: count for policy, count in counts.items() if count > 0}

    def _what_is_missing(self, step: int, state: RoundState | None) -> str:
        waited = f"Step {counted(step)} was not complete after {self._timeout_s:g} s: "
        after = " Look at the router's and the replicas' logs, or raise limits.step_timeout_s."
        if state is None:
            return f"{waited}its round {train_round(step)} was never opened.{after}"
        missing = self._missing(step, state)
        if "tickets" in missing:
            return (
                f"{waited}{missing['tickets']} of {state.num_tickets} tickets of round "
                f"{state.round_id} are still being played.{after}"
            )
        lost = ", ".join(f"{count} of policy '{policy}'" for policy, count in missing.items())
        return f"{waited}groups that the ledger counts did not arrive: {lost}.{after}"

    def _batch(self, step: int) -> Batch:
        groups: dict[str, list[pb.Group]] = {}
        dropped: Counter[str] = Counter()
        for policy, intake in self._intakes.items():
            groups[policy] = []
            arrived, refused = intake.take(step)
            dropped.update(refused)
            for group in arrived:
                if reason := self._fault(policy, step, group):
                    dropped[reason] += 1
                else:
                    groups[policy].append(group)
        self._faults.clear()
        return Batch(step, groups, dict(sorted(dropped.items())))

    def _arrived(self, step: int, state: RoundState) -> Arrived:
        def groups_of(policy: str, positions: Sequence[int]) -> list[pb.Group]:
            tickets = [ticket_id(self._job_id, state.round_id, p) for p in positions]
            arrived = self._intakes[policy].of_tickets(step, tickets)
            return [g for g in arrived if self._fault(policy, step, g) is None]

        return Arrived(step, state.num_tickets, self._finished.positions, groups_of)

    def _fault(self, policy: str, step: int, group: pb.Group) -> str | None:
        """As ``fault``, which reads every token; once for each group."""
        key = policy, group.group_id
        if key not in self._faults:
            expected = Expected(
                self._job_id,
                policy,
                step,
                step,
                self._vocabularies[policy],
                self._max_staleness,
                self._vision.get(policy),
                self._min_candidates,
                policy in self._scored,
            )
            self._faults[key] = fault(group, expected)
        return self._faults[key]


class _Finished:
    """Positions of a round's finished tickets; read again when there are more, not too often."""

    def __init__(self) -> None:
        self.positions: frozenset[int] = frozenset()
        self.poll_s = POLL_S
        self._read_at = -POLL_S

    async def update(self, ledger: StepLedger, state: RoundState) -> None:
        """Read them, if they may differ from ``positions``."""
        self.poll_s = POLL_S
        if len(self.positions) >= state.num_done + state.num_dropped or state.is_complete:
            return
        left_s = self._read_at + state.num_tickets * PER_TICKET_S - time.monotonic()
        if left_s > 0:
            self.poll_s = min(POLL_S, left_s)
            return
        self.positions = frozenset(map(ticket_position, await ledger.finished(state.round_id)))
        self._read_at = time.monotonic()


class _Intake:
    """One policy's stream: groups by step and id, and the entries to ack.

    An unreadable group still counts in its round. It stays pending like the others until a
    checkpoint covers its step, so that a restarted trainer counts it again.
    """

    def __init__(
        self,
        redis: Redis,
        key: str,
        fence: Fence | None,
        *,
        first_step: int,
        recorded_below: int,
    ) -> None:
        self._consumer = Consumer(
            redis,
            key,
            keys.TRAINER_GROUP,
            CONSUMER,
            claim_idle_s=None,
            max_attempts=0,
            fence=fence,
        )
        self._unreadable: dict[str, Entry] = {}
        self._first_step = first_step
        self._recorded_below = recorded_below
        self._entries: dict[str, int] = {}
        self._groups: defaultdict[int, dict[str, pb.Group]] = defaultdict(dict)
        self._refused: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._by_ticket: defaultdict[int, dict[str, list[pb.Group]]] = defaultdict(dict)

    async def read(self, step: int) -> None:
        """Read all available entries; those of a trained step are acked without a look."""
        while entries := await self._consumer.read(count=READ_COUNT, block_s=0.0):
            covered: list[str] = []
            for entry in entries:
                if entry.id not in self._entries and not await self._take_in(entry, step):
                    covered.append(entry.id)
            await self._consumer.ack(*covered)

    def reread(self) -> None:
        """Read again what was delivered to this consumer, since written groups are missing."""
        self._consumer.reread()

    def count(self, step: int) -> int:
        """Number of distinct groups of ``step`` that arrived, unreadable ones included."""
        return len(self._groups[step]) + self._refused[step]["unreadable"]

    def of_tickets(self, step: int, tickets: Sequence[str]) -> list[pb.Group]:
        """The groups of these tickets that arrived, in the order of their ids."""
        groups = [group for t in tickets for group in self._by_ticket[step].get(t, ())]
        return sorted(groups, key=lambda group: group.group_id)

    def take(self, step: int) -> tuple[list[pb.Group], Counter[str]]:
        """The groups of ``step`` in the order of their ids, and counts of the refused by reason."""
        groups = self._groups.pop(step, {})
        refused = self._refused.pop(step, Counter())
        self._by_ticket.pop(step, None)
        return [groups[name] for name in sorted(groups)], refused

    async def ack_below(self, step: int, recorded_below: int) -> None:
        """Forget entries of steps below both; those below ``step`` are never taken in again."""
        self._recorded_below = recorded_below
        covered = [e for e, of in self._entries.items() if of < min(step, recorded_below)]
        for entry in self._unreadable.keys() & set(covered):
            await self._consumer.park(self._unreadable.pop(entry), "not a Group")
        for start in range(0, len(covered), 1000):
            await self._consumer.ack(*covered[start : start + 1000])
        for entry in covered:
            del self._entries[entry]
        self._first_step = max(self._first_step, step)

    async def _take_in(self, entry: Entry, step: int) -> bool:
        """Record one entry; False when a checkpoint covers it already."""
        try:
            group = pb.Group.FromString(entry.payload)
        except DecodeError as error:
            if is_transient(error):
                raise
            return await self._take_in_unreadable(entry, str(error))
        if group.step < min(self._first_step, self._recorded_below):
            return False
        self._entries[entry.id] = group.step
        if group.step < self._first_step:  # covered, and it may hold what its record lacks
            return True
        if group.step < step:  # trained but not checkpointed: steps are collected in order
            self._refused[step]["late"] += 1
            return True
        groups = self._groups[group.step]
        if group.group_id in groups:
            self._refused[group.step]["duplicate"] += 1
        else:
            groups[group.group_id] = group
            self._by_ticket[group.step].setdefault(group.ticket_id, []).append(group)
        return True

    async def _take_in_unreadable(self, entry: Entry, why: str) -> bool:
        step = step_of(entry.round_id)
        if step is None:  # no round counts it, so nothing waits for it
            _log.warning("collector.foreign_entry", entry=entry.id, why=why)
            await self._consumer.park(entry, f"not a Group, and of no round: {why}")
            return True
        if step < self._first_step:
            return False
        self._entries[entry.id] = step
        self._unreadable[entry.id] = entry
        self._refused[step]["unreadable"] += 1
        return True
