"""The step ledger: which rounds are open, what they produced, and which versions exist.

Every change is one atomic script that may be repeated: a process may be killed between any two
commands, and no group is lost or counted twice. Never decides what comes next; the conductor does.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import Episode, Group, RoundKind, Ticket
from troupe.errors import ConflictError, InvalidArgumentError, NotFoundError
from troupe.runtime.streams import keys, scripts
from troupe.runtime.streams.conducting import Conducting, conducting, note_conducted
from troupe.runtime.streams.fencing import (
    Fence,
    Role,
    check_fence,
    fence_args,
    fenced,
    take_epoch,
)
from troupe.runtime.streams.group_parts import (
    are_parts_missing,
    put_parts_back,
    without_images_of,
)
from troupe.runtime.streams.redis import MAX_BLOCK_S, redis_errors
from troupe.runtime.streams.round_state import RoundState
from troupe.runtime.streams.stream import FIELD
from troupe.runtime.streams.versions import check_version


class StepLedger:
    """The ledger of one job. Cheap to create; ``wait_change`` needs an instance for each waiter.

    ``fence`` is the term of the trainer or the conductor that changes it: each change that only
    they may make then raises FencedError once another process has taken over. Workers and readers
    have none.
    """

    def __init__(self, redis: Redis, job_id: str, *, fence: Fence | None = None) -> None:
        self._redis = redis
        self._fence = fence
        self._job_id = job_id
        self._last_change: bytes | str = "0"
        self._open_round = redis.register_script(scripts.OPEN_ROUND)
        self._complete_ticket = redis.register_script(scripts.COMPLETE_TICKET)
        self._drop_ticket = redis.register_script(scripts.DROP_TICKET)
        self._count_failure = redis.register_script(scripts.COUNT_FAILURE)
        self._mark_recorded = redis.register_script(scripts.MARK_RECORDED)
        self._cut_round = redis.register_script(scripts.CUT_ROUND)
        self._commit_version = redis.register_script(scripts.COMMIT_VERSION)
        self._set_result = redis.register_script(scripts.SET_RESULT)
        self._fail = redis.register_script(scripts.FAIL)

    async def take(self, role: Role, holder: str, *, policy: str = "") -> Fence:
        """Begin a term in ``role`` and make this instance's changes under it.

        ``policy``: in the role of the trainer of this policy alone.
        """
        self._fence = await take_epoch(self._redis, self._job_id, role, holder, policy=policy)
        return self._fence

    async def check(self) -> None:
        """Raises FencedError when another process has taken over; for effects outside of Redis."""
        if self._fence is not None:
            await check_fence(self._redis, self._fence)

    async def open_round(
        self, round_id: str, kind: RoundKind, step: int, tickets: Sequence[Ticket]
    ) -> bool:
        """Open a round with all its tickets, once; False when it was open already.

        Raises:
            InvalidArgumentError: a ticket belongs to another job or round, or is there twice.
        """
        self._check_tickets(round_id, tickets)
        job = self._job_id
        with self._changing(f"opening of round {round_id} of job {job}"):
            opened = await self._open_round(
                keys=[
                    keys.round_state(job, round_id),
                    keys.tickets(job),
                    keys.changes(job),
                    keys.epochs(job),
                ],
                args=[
                    int(kind),
                    step,
                    time.time(),
                    round_id,
                    keys.WORKERS_GROUP,
                    *(ticket.SerializeToString() for ticket in tickets),
                    *fence_args(self._fence),
                ],
            )
        return opened == 1

    async def round(self, round_id: str) -> RoundState | None:
        """The round's counters, or None when it was never opened."""
        with redis_errors(f"round {round_id} of job {self._job_id}"):
            fields: Any = await self._redis.hgetall(keys.round_state(self._job_id, round_id))
        if not fields:
            return None
        text = {name.decode(): value.decode() for name, value in fields.items()}
        return RoundState.from_fields(round_id, text)

    async def finished(self, round_id: str) -> set[str]:
        """Ids of the tickets that were played or dropped, until the round is recorded."""
        with redis_errors(f"finished tickets of round {round_id} of job {self._job_id}"):
            members: Any = await self._redis.smembers(keys.round_done(self._job_id, round_id))
        return {member.decode() for member in members}

    async def complete_ticket(
        self, ticket: Ticket, entry_id: str, groups: Sequence[Group], episode: Episode
    ) -> bool:
        """Store the groups and episode of a played ticket, count them and ack the ticket.

        False (and only the ack) when the ticket was finished before: a replay counts once.
        """
        policies = sorted({group.policy for group in groups})
        script_keys = self._ticket_keys(ticket)
        index_of = {policy: len(script_keys) + 1 + i for i, policy in enumerate(policies)}
        script_keys += [keys.groups(self._job_id, policy) for policy in policies]
        args = self._ticket_args(ticket, entry_id, without_images_of(groups, episode))
        for group in groups:
            args += [index_of[group.policy], group.policy, group.SerializeToString()]
        with redis_errors(f"completion of ticket {ticket.ticket_id}"):
            return await self._complete_ticket(keys=script_keys, args=args) == 1

    async def drop_ticket(self, ticket: Ticket, entry_id: str, episode: Episode) -> bool:
        """Park a ticket that can't be played, with ``episode.dropped_reason``, and count it.

        The episode is stored with those that were played. False when it was finished before.
        """
        script_keys = [*self._ticket_keys(ticket), keys.dead(keys.tickets(self._job_id))]
        args = self._ticket_args(ticket, entry_id, episode)
        args += [ticket.SerializeToString(), episode.dropped_reason]
        with redis_errors(f"dropping of ticket {ticket.ticket_id}"):
            return await self._drop_ticket(keys=script_keys, args=args) == 1

    async def count_failure(self, ticket: Ticket, reason: str, failure_id: str) -> int:
        """Count one more failure of playing the ticket; the number so far, over all deliveries.

        Asked again at once with the same ``failure_id``, it counts nothing more.
        """
        with redis_errors(f"failure of ticket {ticket.ticket_id}"):
            return await self._count_failure(
                keys=[keys.round_state(self._job_id, ticket.round_id)],
                args=[ticket.ticket_id, reason, failure_id],
            )

    async def episodes(
        self,
        round_id: str,
        *,
        kept: Callable[[Sequence[Episode]], Sequence[Episode]] = lambda episodes: episodes,
        with_tokens: bool = False,
    ) -> list[Episode]:
        """Episodes of a round that is not recorded yet, in the order in which they ended.

        Those that ``kept`` chooses of all have their images and, ``with_tokens``, the tokens that
        their groups hold; of the others neither is read.
        """
        key = keys.episodes(self._job_id, round_id)
        episodes: list[Episode] = []
        after = "-"
        while True:
            with redis_errors(f"episodes of round {round_id} of job {self._job_id}"):
                page: Any = await self._redis.xrange(key, min=after, count=256)
            for entry_id, fields in page:
                check_version(fields, f"episode {entry_id.decode()} of round {round_id}")
                episodes.append(Episode.FromString(fields[FIELD]))
            if len(page) < 256:
                break
            after = f"({page[-1][0].decode()}"
        shown = kept(episodes)
        chosen = {id(episode) for episode in shown}
        for episode in episodes:
            if id(episode) not in chosen:
                episode.ClearField("images")
        if are_parts_missing(shown, with_tokens=with_tokens):
            await self._put_back(round_id, shown, with_tokens=with_tokens)
        return episodes

    async def _put_back(
        self, round_id: str, episodes: Sequence[Episode], *, with_tokens: bool
    ) -> None:
        state = await self.round(round_id)
        policies = sorted(state.num_groups) if state is not None else []
        redis, job = self._redis, self._job_id
        await put_parts_back(redis, job, round_id, policies, episodes, with_tokens=with_tokens)

    async def mark_recorded(self, round_id: str) -> None:
        """Forget the episodes of a round whose metrics are stored. Idempotent.

        Raises:
            NotFoundError: it was never opened.
            ConflictError: it is still being played.
        """
        job = self._job_id
        with self._changing(f"recording of round {round_id} of job {job}"):
            answer = await self._mark_recorded(
                keys=[
                    keys.round_state(job, round_id),
                    keys.round_done(job, round_id),
                    keys.episodes(job, round_id),
                    keys.changes(job),
                    keys.epochs(job),
                ],
                args=[round_id, *fence_args(self._fence)],
            )
        if answer == -1:
            raise NotFoundError(f"Job {job} has no round {round_id}; open it before recording it.")
        if answer == -2:
            raise ConflictError(f"Round {round_id} of job {job} is not complete; record it then.")

    async def cut_round(self, round_id: str) -> None:
        """Mark a round whose tickets at work are to be dropped by those who play them."""
        job = self._job_id
        with self._changing(f"cutting of round {round_id} of job {job}"):
            await self._cut_round(
                keys=[keys.round_state(job, round_id), keys.changes(job), keys.epochs(job)],
                args=[round_id, *fence_args(self._fence)],
            )

    async def commit_version(self, policy: str, version: int, tensor_digest: str) -> None:
        """Record that every replica serves ``version`` of ``policy``. The newest may be repeated.

        Raises:
            ConflictError: a higher version was committed, or this one with another digest: one
                version number never stands for two sets of weights.
        """
        with self._changing(f"commit of {policy} version {version}"):
            newer = await self._commit_version(
                keys=self._ledger_keys(),
                args=[policy, version, tensor_digest, *fence_args(self._fence)],
            )
        if newer == -2:
            raise ConflictError(
                f"Version {version} of policy {policy} of job {self._job_id} is committed with "
                f"other weights than those with digest {tensor_digest[:16]}. Publish the weights "
                "that were committed, or begin a new life of the job: resume it after it failed."
            )
        if newer >= 0:
            raise ConflictError(
                f"Policy {policy} of job {self._job_id} is at version {newer}, so version "
                f"{version} can't be committed; another trainer is ahead, or this one restored "
                "an old checkpoint."
            )

    async def versions(self) -> dict[str, int]:
        """Committed version of each policy that has one."""
        fields = await self._ledger_fields()
        return {n.split(":", 1)[1]: int(v) for n, v in fields.items() if n.startswith("version:")}

    async def digests(self) -> dict[str, str]:
        """Tensor digest of each policy's committed version."""
        fields = await self._ledger_fields()
        return {n.split(":", 1)[1]: v for n, v in fields.items() if n.startswith("digest:")}

    async def set_result(self, result: Mapping[str, Any], *, policy: str = "") -> None:
        """Record the result once the job's artifacts are exported; it is JSON-serialisable.

        ``policy``: only this policy's, by its trainer; the job's result has a part from each.
        """
        with self._changing(f"result of job {self._job_id}"):
            await self._set_result(
                keys=self._ledger_keys(),
                args=[_result_of(policy), json.dumps(result), *fence_args(self._fence)],
            )

    async def result(self, trainers: Sequence[str] = ("",)) -> dict[str, Any] | None:
        """What ``set_result`` recorded, or None; of several trainers only once all have."""
        fields = await self._ledger_fields()
        results = [fields.get(_result_of(policy)) for policy in trainers]
        parts: list[dict[str, Any]] = [json.loads(raw) for raw in results if raw is not None]
        if len(parts) < len(results):
            return None
        if len(parts) == 1:
            return parts[0]
        policies = {name: paths for part in parts for name, paths in part["policies"].items()}
        return {**parts[0], "policies": policies}

    async def fail(self, reason: str) -> None:
        """Record why the job can't go on. The first reason stays."""
        with self._changing(f"failure of job {self._job_id}"):
            await self._fail(keys=self._ledger_keys(), args=[reason, *fence_args(self._fence)])

    async def failure(self) -> str | None:
        """Why the job can't go on, or None."""
        return (await self._ledger_fields()).get("failure")

    async def note_conducted(self, counted_s: float) -> None:
        """Say that the job is conducted, and for how long its limits have counted."""
        await note_conducted(self._redis, self._job_id, self._fence, counted_s=counted_s)

    async def conducting(self) -> Conducting | None:
        """What its conductor said last of the job's time; None where it says nothing."""
        return await conducting(self._redis, self._job_id)

    async def wait_change(self, timeout_s: float) -> None:
        """Return when the ledger changed since the last return, or after ``timeout_s``.

        The first call of an instance returns at once when the ledger ever changed: read the state
        after it returns, not before, and nothing is missed.
        """
        deadline = time.monotonic() + timeout_s
        key = keys.changes(self._job_id)
        while (left_s := deadline - time.monotonic()) > 0:
            block_ms = max(1, round(min(left_s, MAX_BLOCK_S) * 1000))
            with redis_errors(f"wait for job {self._job_id}"):
                streams: Any = await self._redis.xread({key: self._last_change}, block=block_ms)
            if streams:
                self._last_change = streams[0][1][-1][0]
                return

    async def delete(self) -> None:
        """Delete every key of the job but its record and its events.

        From then on every process that had a term in it is refused.
        """
        names = await self.every_key()
        with redis_errors(f"deletion of job {self._job_id}"):
            for name in names:
                await self._redis.unlink(name)

    async def every_key(self) -> list[str]:
        """Names of the job's keys that there are, but its record and its events."""
        job = self._job_id
        kept_keys = {keys.job(job), keys.events(job), keys.event_ids(job)}
        with redis_errors(f"keys of job {job}"):
            matches = self._redis.scan_iter(keys.every_key_of(job), count=1000)
            names = {key.decode() async for key in cast("AsyncIterator[bytes]", matches)}
        return sorted(names - kept_keys)

    @contextmanager
    def _changing(self, operation: str) -> Generator[None]:
        """Wraps a change that is refused to a superseded process."""
        with redis_errors(operation), fenced(self._fence):
            yield

    def _ledger_keys(self) -> list[str]:
        return [keys.ledger(self._job_id), keys.changes(self._job_id), keys.epochs(self._job_id)]

    async def _ledger_fields(self) -> dict[str, str]:
        with redis_errors(f"ledger of job {self._job_id}"):
            fields: Any = await self._redis.hgetall(keys.ledger(self._job_id))
        return {name.decode(): value.decode() for name, value in fields.items()}

    def _ticket_keys(self, ticket: Ticket) -> list[str]:
        job, round_id = self._job_id, ticket.round_id
        return [
            keys.round_state(job, round_id),
            keys.round_done(job, round_id),
            keys.tickets(job),
            keys.episodes(job, round_id),
            keys.changes(job),
        ]

    def _ticket_args(
        self, ticket: Ticket, entry_id: str, episode: Episode
    ) -> list[str | int | bytes]:
        return [
            ticket.ticket_id,
            entry_id,
            keys.WORKERS_GROUP,
            episode.SerializeToString(),
            ticket.round_id,
        ]

    def _check_tickets(self, round_id: str, tickets: Sequence[Ticket]) -> None:
        if len({ticket.ticket_id for ticket in tickets}) != len(tickets):
            raise InvalidArgumentError(f"Round {round_id} has two tickets with one ticket_id.")
        for ticket in tickets:
            if (ticket.job_id, ticket.round_id) != (self._job_id, round_id):
                raise InvalidArgumentError(
                    f"Ticket {ticket.ticket_id!r} is of job {ticket.job_id!r}, round "
                    f"{ticket.round_id!r}; it can't be opened in {self._job_id!r}, {round_id!r}."
                )


def _result_of(policy: str) -> str:
    """The ledger's field for the result of one trainer."""
    return f"result:{policy}" if policy else "result"
