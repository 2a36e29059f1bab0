"""Records the job's steps, and where a restarted trainer resumes: checkpoints and events.

Owns when a checkpoint is written, and that each step is reported once, even when the trainer dies
between writing and reporting.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from troupe.errors import UnavailableError
from troupe.ids import counted
from troupe.retry import STEADY, Backoff, retry
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.deadlines import checkpoint_s
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints, Trained
from troupe_trainer.learn.advice import (
    RAISE_LIMIT,
    flat_advice,
    is_truncated,
    sparse_advice,
    untaught_advice,
)
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.flat_steps import FlatSteps
from troupe_trainer.learn.learners import Learned, Learners

_log = get_logger(__name__)
_BACKOFF = Backoff(1.0, 1.0, STEADY)
"""Between two tries of a checkpoint that must be written now."""


class Checkpointing:
    """The checkpoints and step events of one trainer. ``restore`` comes first.

    When each policy has its own trainer, they report the same steps under different event ids.
    """

    def __init__(
        self, spec: JobSpec, learners: Learners, checkpoints: Checkpoints, events: EventLog
    ) -> None:
        self._spec = spec
        self._learners = learners
        self._checkpoints = checkpoints
        self._events = events
        self._mark = f"{learners.policy}-" if learners.policy else ""
        self._covered = 0
        self._reached = 0
        self._reports: list[Mapping[str, Any]] = []
        self._trained: list[tuple[int, Trained]] = []
        self._writing: asyncio.Task[None] | None = None
        self._began = 0
        self._is_learning = False
        self._refusal = ""
        self._is_truncated = False
        self._was_sparse = False
        self._untaught: set[str] = set()
        self._flat_steps = FlatSteps(events)

    async def restore(self, *, with_all: bool = False) -> int:
        """Load the newest checkpoint into the learners; returns the step to continue with.

        ``with_all``: the newest of a step that every policy has.
        """
        snapshot = await self._learners.on_thread(lambda: self._checkpoints.load(with_all=with_all))
        if snapshot is None:
            return 0
        await self._learners.on_thread(
            lambda: self._learners.restore(snapshot.learners, snapshot.baselines)
        )
        for report in snapshot.reports:
            await self.emit_learned(TrainerPart.from_wire(report), {})
        self._covered = self._reached = self._began = snapshot.step
        _log.info("checkpoint.restored", step=snapshot.step)
        return snapshot.step

    def begin_learning(self) -> None:
        """Note that weights move: what the learners hold is no step's state until ``write``.

        A checkpoint that is asked for meanwhile is not made; the newest one on disk stands.
        """
        self._is_learning = True

    async def write(self, reached: int, batch: Batch, learned: Learned, report: TrainerPart) -> int:
        """Note the step that led to ``reached`` and begin a checkpoint when it is due.

        The weights are copied at once and written while the job goes on; the last step's
        checkpoint is awaited. Returns the number of steps that a checkpoint on disk covers now.
        A checkpoint that the disk refused is reported, and the next one includes its contents.

        Raises:
            UnavailableError: the last step's was refused for ``deadlines.checkpoint_s``.
        """
        self._is_learning = False
        self._trained.append((batch.step, _trained(batch, learned)))
        self._reports.append(report.to_wire())
        self._reached = reached
        if reached == self._spec.steps:
            await self.save()
        elif reached % self._spec.checkpoint.every == 0:
            await self._begin()
        return self._covered

    async def save(self) -> None:
        """Checkpoint the current state, and return when it is on disk; nothing while learning.

        Raises:
            UnavailableError: the disk refused it for ``deadlines.checkpoint_s``.
        """
        if self._is_learning:
            await self._end()
            return
        await retry(self._save_once, _BACKOFF, within_s=checkpoint_s(self._spec))

    async def cover(self) -> int:
        """Checkpoint the current state before it is due; the steps that one on disk covers now."""
        await self._begin()
        await self._end()
        return self._covered

    async def _save_once(self) -> None:
        if await self.cover() < self._reached:
            raise UnavailableError(
                f"The checkpoint of step {self._reached} could not be written for "
                f"{checkpoint_s(self._spec):g} s: {self._refusal}"
            )

    async def close(self) -> None:
        """Wait for a checkpoint that is being written; its error is logged."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await asyncio.wait({writing})
            if not writing.cancelled() and (error := writing.exception()) is not None:
                _log.warning("checkpoint.failed", error=str(error))

    async def _begin(self) -> None:
        """Copy the state and write it on another thread; one checkpoint is written at a time."""
        await self._end()
        if self._is_learning or self._reached == self._began:
            return
        step, reports, trained = self._reached, list(self._reports), list(self._trained)
        try:
            folder = await asyncio.to_thread(self._checkpoints.begin, step)
        except UnavailableError as error:
            await self._refused(step, error)
            return
        states, baselines = await self._learners.on_thread(
            lambda: (self._learners.states(folder), self._learners.baselines())
        )
        self._reports.clear()
        self._trained.clear()
        self._began = step
        snapshot = CheckpointContents(step, states, reports, trained, baselines)
        self._writing = asyncio.create_task(self._write(snapshot), name="checkpoint")

    async def _write(self, snapshot: CheckpointContents) -> None:
        try:
            await asyncio.to_thread(self._checkpoints.save, snapshot)
        except UnavailableError as error:
            self._reports[:0], self._trained[:0] = snapshot.reports, snapshot.trained
            self._began = self._covered
            await self._refused(snapshot.step, error)
            return
        self._covered = snapshot.step

    async def _refused(self, step: int, error: UnavailableError) -> None:
        """Note that the disk refused the checkpoint of ``step``, and report it."""
        self._refusal = error.message
        _log.warning("checkpoint.failed", step=step, error=error.message)
        data = {"step": step, "error": error.message}
        event_id = f"checkpoint-failed-{self._mark}{step}"
        await self._events.emit("checkpoint.failed", data, event_id=event_id)

    async def _end(self) -> None:
        """Wait until the checkpoint being written is on disk or was refused."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await asyncio.shield(writing)

    async def emit_learned(self, report: TrainerPart, phases: Mapping[str, float]) -> None:
        """Emit the step's event; a step that was reported before is not reported again."""
        event_id = f"learned-{self._mark}{report.step}"
        phases = {name: round(seconds, 4) for name, seconds in phases.items()}
        data = replace(report, phases=phases).to_wire()
        await self._events.emit("step.learned", data, event_id=event_id)

    async def emit_flat(self, report: TrainerPart, batch: Batch) -> None:
        """Emit an event when no group of the step had rewards to learn from, and it is news."""
        if report.is_flat is None:  # nobody's turn to learn
            return
        if not report.is_flat:
            self._flat_steps.varied()
            return
        whose = self._whose()
        groups = [group for groups in batch.groups.values() for group in groups]
        advice = flat_advice(groups, report)
        if not await self._flat_steps.is_news(advice.cause):
            return
        data = {
            "step": report.step,
            "groups_trained": report.groups_trained,
            "groups_zero_variance": report.groups_zero_variance,
            "groups_dropped": report.groups_dropped,
            "reward_mean": report.trained_reward_mean,
            "sentence": f"No group{whose} of this step had advantages other than 0: "
            f"{_moved(report)}. {advice.words}",
        }
        _log.warning("learning.flat", **data)
        event_id = f"flat-{self._mark}{report.step}"
        await self._events.emit("learning.flat", data, event_id=event_id)

    async def emit_sparse(self, report: TrainerPart, batch: Batch, learned: Learned) -> None:
        """Emit an event, once in a life, when most groups of a step have no variance.

        And once for each agent that a step that is not flat taught nothing.
        """
        credited = [group for groups in learned.credited.values() for group in groups]
        for agent, advice in ({} if report.is_flat else untaught_advice(credited)).items():
            if agent not in self._untaught:
                self._untaught.add(agent)
                await self._emit_sparse(report, advice, of_agent=agent)
        if self._was_sparse:
            return
        groups = [group for groups in batch.groups.values() for group in groups]
        advice = sparse_advice(groups, report, redraws=self._spec.algorithm.redraws)
        if advice:
            self._was_sparse = True
            await self._emit_sparse(report, advice)

    async def _emit_sparse(self, report: TrainerPart, advice: str, *, of_agent: str = "") -> None:
        data = {
            "step": report.step,
            "groups_trained": report.groups_trained,
            "groups_zero_variance": report.groups_zero_variance,
            "sentence": f"In step {counted(report.step)}{self._whose()} {advice} The job goes on.",
        }
        _log.warning("learning.sparse", **data)
        event_id = "-".join(filter(None, (f"sparse-{self._mark}{report.step}", of_agent)))
        await self._events.emit("learning.sparse", data, event_id=event_id)

    def _whose(self) -> str:
        return f" of policy '{self._learners.policy}'" if self._learners.policy else ""

    async def emit_truncated(self, report: TrainerPart) -> None:
        """Emit an event when the token limit begins to cut off most completions of a step."""
        was_truncated, self._is_truncated = self._is_truncated, is_truncated(report)
        if was_truncated or not self._is_truncated:
            return
        whose = self._whose()
        data = {
            "step": report.step,
            "truncated_fraction": report.truncated_fraction,
            "completion_tokens": report.completion_tokens,
            "sentence": f"{report.truncated_fraction:.0%} of the completions{whose} in this step "
            "ran into the token limit, and their rewards judge unfinished answers. "
            f"{RAISE_LIMIT} The job goes on.",
        }
        _log.warning("learning.truncated", **data)
        event_id = f"truncated-{self._mark}{report.step}"
        await self._events.emit("learning.truncated", data, event_id=event_id)

    async def emit_alarms(self, alarms: Sequence[Mapping[str, Any]]) -> None:
        """Emit one event for each policy whose rollout and trainer disagree."""
        for alarm in alarms:
            _log.warning("parity.alarm", **alarm)
            event_id = f"parity-{alarm['policy']}-{alarm['step']}"
            await self._events.emit("parity.alarm", alarm, event_id=event_id)


def _moved(report: TrainerPart) -> str:
    """What a flat step changed nevertheless, in words for people."""
    parts = ["the KL term or entropy bonus"] if report.groups_trained else []
    if report.value_loss is not None:
        parts.append("the critic")
    if report.demonstration_tokens:
        parts.append("demonstrations")
    return f"only {' and '.join(parts)} moved any weight" if parts else "nothing was learnt"


def _trained(batch: Batch, learned: Learned) -> Trained:
    """Every group of the step with its advantages; a policy that does not learn has none."""
    advantages = {
        g.record.group_id: g.advantages
        for credited_groups in learned.credited.values()
        for g in credited_groups
    }
    return {
        policy: {group.group_id: advantages.get(group.group_id, ()) for group in groups}
        for policy, groups in batch.groups.items()
    }
