"""Conducts one job: opens rounds, waits for them and for versions, until the last step.

Level-triggered on the step ledger, so it may be stopped at any moment and started anywhere. Never
plays an episode and never learns.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from troupe.aio import WallClockDeadline
from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import JobFailedError
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.faults import reached
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe.tasks.family import Taskset
from troupe_router.conduct.lengths import TicketLengths
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.tickets import RoundTasks, eval_tasks, make_tickets, train_tasks
from troupe_router.run.recorder import Recorder

_LOOK_S = 1.0
"""The ledger is read this often even when it signals no change."""
_PER_TICKET_S, _LONGEST_PAUSE_S = 2e-4, 0.5
"""After a change the ledger is left alone for so long for each unfinished ticket, at most: of
10,000 tickets that end 70 a second, not each is worth a look."""
_TAIL = 1 / 8
"""An evaluation begins when at most this share of its training round's tickets is unfinished."""


class RoundRunner:
    """One job's steps.

    ``missing`` names what does not serve, for the reasons of failed jobs. While ``disk`` or
    ``memory`` is short of room, no round is opened. ``held_at`` is when a queue, the
    pulling of images or the lack of a conductor alone were last seen to hold the job back.
    """

    def __init__(
        self,
        job: JobRecord,
        ledger: StepLedger,
        store: JobStore,
        recorder: Recorder,
        events: EventLog,
        taskset: Taskset,
        *,
        missing: Callable[[], Awaitable[list[str]]],
        disk: DiskSpace,
        memory: RedisMemory,
        records_tokens: bool,
        held_at: Callable[[], float],
    ) -> None:
        self._job = job
        self._spec = job.spec
        self._ledger = ledger
        self._store = store
        self._recorder = recorder
        self._events = events
        self._taskset = taskset
        self._missing = missing
        self._disk = disk
        self._memory = memory
        self._records_tokens = records_tokens
        self._held_at = held_at
        self._evals = job.spec.eval_steps()
        self._lengths = TicketLengths()
        self._seen = 0
        self._tail_began = time.monotonic()
        self._patience = WallClockDeadline(self._spec.limits.step_timeout_s)

    async def run(self) -> dict[str, Any]:
        """Conduct to the end; the trainer's result. Raises JobFailedError."""
        step = await self._wait_step(at_least=0, since=time.time())
        await self._recorder.rewind(step)
        await self._recorder.catch_up(step - 1)
        self._seen = max(step - 1, 0)
        await self._record_learned(step)
        while True:
            await self._store.set_step(self._job.job_id, step)
            evaluation = await self._evaluation(step)
            if step >= self._spec.steps:
                if evaluation is not None:
                    await self._play(evaluation)
                return await self._wait_result()
            if evaluation is not None and self._spec.max_staleness:
                await self._play(evaluation)
                evaluation = None
            played = await self._play(
                train_tasks(self._spec, step, self._taskset.size), in_tail=evaluation
            )
            began = played.opened_at if evaluation is None else time.time()  # it is over now
            step = await self._next(step, since=began)

    async def _next(self, step: int, *, since: float) -> int:
        """The step after ``step``, once it may be played.

        Strictly on-policy, that is when every policy has learnt from ``step``. Otherwise they may
        lag by ``max_staleness``; an evaluation and the end wait for them all the same.
        """
        lag = self._spec.max_staleness
        is_barrier = step + 1 in self._evals or step + 1 >= self._spec.steps
        if not lag or is_barrier:
            step = await self._wait_step(at_least=step + 1, since=since)
            await self._record_learned(step)
            return step
        await self._wait_versions(at_least=step + 1 - lag, since=since)
        return step + 1

    async def _record_learned(self, version: int) -> None:
        """Report, once each, that the steps below ``version`` are learnt."""
        for step in range(self._seen, version):
            await self._recorder.learned(step, is_end=self._spec.max_staleness > 0)
        self._seen = max(self._seen, version)

    async def _evaluation(self, step: int) -> RoundTasks | None:
        """The evaluation of version ``step``; None where none is due, or it is recorded."""
        tasks = eval_tasks(self._spec, step, self._taskset.size)
        if tasks is None or not await self._recorder.has_eval(step):
            return tasks
        state = await self._ledger.round(tasks.round_id)
        if state is None:
            await self._ledger.open_round(tasks.round_id, tasks.kind, step, [])
        if state is None or (state.is_complete and not state.is_recorded):
            await self._ledger.mark_recorded(tasks.round_id)  # the trainer waits for this
        return None

    async def _play(self, tasks: RoundTasks, *, in_tail: RoundTasks | None = None) -> RoundState:
        """Open the round unless it is open, await its last ticket, and record it.

        ``in_tail`` is opened in its tail: it fills the replicas that have nothing left to draw, and
        goes on while the trainer learns, which keeps and publishes nothing before it is recorded.
        """
        state = await self._ledger.round(tasks.round_id)
        if state is None:
            await self._wait_room()
            state = await self._open(tasks)
        if not self._spec.max_staleness:
            await self._recorder.next_opened(state)
        self._tail_began = time.monotonic()
        beside = await self._ledger.round(in_tail.round_id) if in_tail else None
        while True:
            state = await self._look(state)
            if in_tail and beside is None and (state.is_recorded or self._has_tail(state)):
                if state.is_recorded:
                    await self._wait_room()
                beside = await self._open(in_tail)
            state = await self._record(tasks, state)
            if in_tail and beside:
                beside = await self._record(in_tail, await self._look(beside))
            unrecorded = next((s for s in (state, beside) if s and not s.is_recorded), None)
            if unrecorded:
                await self._wait(self._unplayed(unrecorded), unrecorded.opened_at)
                pause_s = _PER_TICKET_S * _num_unfinished(unrecorded)
                await asyncio.sleep(min(_LONGEST_PAUSE_S, pause_s))
                await self._look_around(tasks.step)
            elif beside or not in_tail:
                return state

    async def _open(self, tasks: RoundTasks) -> RoundState:
        versions = await self._versions(tasks.kind, tasks.step)
        tickets = make_tickets(
            self._job.job_id,
            tasks.round_id,
            tasks.kind,
            tasks.step,
            tasks.split,
            tasks.indices,
            versions,
            time.time(),
            omits_tokens=not self._records_tokens,
        )
        tickets = self._lengths.longest_first(tickets)
        await self._ledger.open_round(tasks.round_id, tasks.kind, tasks.step, tickets)
        reached("router.round_opened", tasks.round_id)
        state = await self._round(tasks.round_id)
        await self._emit_opened(state)
        return state

    async def _look(self, state: RoundState) -> RoundState:
        """The round's present state."""
        if not state.is_recorded:
            state = await self._round(state.round_id)
            state.check_drops(self._spec.limits.max_dropped_fraction)
        if not state.is_complete:
            await self._cut_tail(state)
        return state

    async def _record(self, tasks: RoundTasks, state: RoundState) -> RoundState:
        """Record the round if it is complete, and not recorded yet."""
        if not state.is_complete or state.is_recorded:
            return state
        episodes = await self._recorder.record(state)
        self._lengths.learn(tasks.split, tasks.indices, episodes)
        await self._ledger.mark_recorded(tasks.round_id)
        return replace(state, is_recorded=True)

    async def _cut_tail(self, state: RoundState) -> None:
        """Cut a training round that has waited long enough for tickets that may be dropped."""
        limits = self._spec.limits
        if limits.tail_timeout_s is None or state.kind == pb.ROUND_KIND_EVAL or state.is_cut:
            return
        if state.num_tickets - state.num_done > limits.max_dropped_fraction * state.num_tickets:
            self._tail_began = time.monotonic()
        elif time.monotonic() - self._tail_began > limits.tail_timeout_s:
            await self._ledger.cut_round(state.round_id)

    async def _versions(self, kind: pb.RoundKind, step: int) -> dict[str, int]:
        """The version of each policy that a round's tickets ask for."""
        exact = dict.fromkeys(self._spec.policies, step)
        if not self._spec.max_staleness or kind == pb.ROUND_KIND_EVAL:
            return exact
        present = await self._ledger.versions()
        return {policy: min(step, present[policy]) for policy in exact}

    async def _look_around(self, step: int) -> None:
        """While ``step`` is played ahead of the learning, note which steps before it are learnt."""
        if self._spec.max_staleness:
            versions = await self._ledger.versions()
            reached = min(versions[policy] for policy in self._spec.policies)
            await self._record_learned(min(reached, step))

    async def _wait_versions(self, *, at_least: int, since: float) -> None:
        """Wait until no policy is below ``at_least``."""
        while True:
            await self._look_around(at_least + self._spec.max_staleness)
            if self._seen >= at_least:
                return
            await self._wait(f"the trainer to publish version {at_least}", since)

    async def _wait_step(self, *, at_least: int, since: float) -> int:
        """The step that all policies are at, once it is ``at_least``."""
        while True:
            versions = await self._ledger.versions()
            steps = {versions.get(policy, -1) for policy in self._spec.policies}
            if len(steps) == 1 and min(steps) >= at_least:
                return min(steps)
            late = [p for p in self._spec.policies if versions.get(p, -1) < at_least]
            names = ", ".join(late or self._spec.policies)
            await self._wait(f"the trainer to publish version {at_least} of {names}", since)

    async def _wait_result(self) -> dict[str, Any]:
        since = time.time()
        while True:
            result = await self._ledger.result(self._spec.trainers())
            if result is not None:
                return result
            await self._wait("the trainer to export the trained policies", since)

    def _has_tail(self, state: RoundState) -> bool:
        """Whether an evaluation may begin in the round's tail: it is there, and there is room."""
        is_there = _num_unfinished(state) <= _TAIL * state.num_tickets
        return is_there and not self._disk.is_short and not self._memory.is_short

    async def _wait_room(self) -> None:
        """Wait while disk or Redis is short of room: a step that is not open writes nothing."""
        while self._disk.is_short:
            await self._wait("room on the disk", self._disk.short_at)
        since = time.time()
        while (shortage := self._memory.shortage) is not None and self._memory.is_short:
            began_at = max(since, shortage.began_at)
            await self._wait(f"memory of Redis ({shortage.sentence})", began_at)

    async def _wait(self, what: str, since: float) -> None:
        """Wait until the ledger changes; raises JobFailedError on a failure or when time is up.

        A time without room on the disk or in the cluster's queue, while nodes pull images, or in
        which nobody conducted the job, is nobody's fault: the limit counts from its end.
        """
        limit_s = self._spec.limits.step_timeout_s
        held_at = max(self._disk.short_at, self._held_at())
        left_s = self._patience.left_s(max(since, held_at))
        if left_s <= 0:
            missing = await self._missing()
            raise JobFailedError(
                f"waited longer than limits.step_timeout_s = {limit_s:g} s for {what}; "
                + (f"not serving: {', '.join(missing)}; " if missing else "")
                + f"look at the logs in {self._job.run_dir / 'logs'}"
            )
        await self._ledger.wait_change(min(left_s, _LOOK_S))
        failure = await self._ledger.failure()
        if failure is not None:
            raise JobFailedError(failure)

    def _unplayed(self, state: RoundState) -> str:
        """The unfinished tickets, in words."""
        left = _num_unfinished(state)
        failure = state.last_failure
        why = f" (playing one failed last with {failure})" if failure else ""
        return f"{left} of {state.num_tickets} tickets of {state.round_id}{why}"

    async def _round(self, round_id: str) -> RoundState:
        state = await self._ledger.round(round_id)
        if state is None:
            raise JobFailedError(f"round {round_id} vanished from Redis; resume the job")
        return state

    async def _emit_opened(self, state: RoundState) -> None:
        data = {
            "round_id": state.round_id,
            "kind": kind_name(state.kind),
            "step": state.step,
            "num_tickets": state.num_tickets,
        }
        event_id = f"{self._job.life}:round.opened:{state.round_id}"
        await self._events.emit("round.opened", data, event_id=event_id)


def _num_unfinished(state: RoundState) -> int:
    """The round's tickets that are neither played nor dropped."""
    return state.num_tickets - state.num_done - state.num_dropped


def kind_name(kind: int) -> str:
    """ "train" or "eval"."""
    return "eval" if kind == pb.ROUND_KIND_EVAL else "train"
