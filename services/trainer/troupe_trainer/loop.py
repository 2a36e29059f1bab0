"""The training loop: collect, learn, checkpoint, publish. One function on one screen.

Owns the order of operations and nothing else: no branch on transport, device, LoRA or agent.
"""

from dataclasses import dataclass, replace

from troupe.runtime.faults import reached
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.control import Control, TrainerProgress
from troupe_trainer.learn.collector import Collector
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.parity import parity_alarms
from troupe_trainer.learn.report import step_report
from troupe_trainer.publish.device import Device
from troupe_trainer.publish.evaluations import Evaluations
from troupe_trainer.publish.push import PushSeconds
from troupe_trainer.publish.versions import Versions


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that the loop drives."""

    learners: Learners
    collector: Collector
    versions: Versions
    device: Device
    evaluations: Evaluations
    checkpointing: Checkpointing
    progress: TrainerProgress
    control: Control


async def train(spec: JobSpec, parts: Parts, *, first_step: int) -> None:
    """Train from ``first_step`` to the last step; every effect precedes its ack.

    Raises:
        JobFailedError: the job can't go on; StoppedError: it was asked to stop.
    """
    progress = parts.progress
    with progress.during("publish"):
        await parts.versions.publish(first_step)
    await parts.collector.ack_below(first_step)
    for step in range(first_step, spec.steps):
        progress.begin_step(step)
        with progress.during("collect"):
            batch = await parts.collector.collect(
                step, ahead=parts.learners.while_played, cover=parts.checkpointing.cover
            )
            reached("trainer.collected", step)
            await parts.control.gate()
        progress.count_as("learn", batch.late_s, of="collect")
        with progress.during("evaluation"):
            await parts.evaluations.before_learning(step)
        with progress.during("device"):
            await parts.device.take()
        parts.checkpointing.begin_learning()
        with progress.during("learn"):
            learned = await parts.learners.learn(batch)
        learn_s = progress.phase_seconds["learn"]
        report = step_report(batch, learned, learn_s, policy=parts.learners.policy)
        await parts.checkpointing.emit_alarms(parity_alarms(spec, step, learned.outcomes))
        with progress.during("evaluation"):
            await parts.evaluations.before_checkpoint(step)
        # After it: a flat step of a team whose held-out success has just risen is no news.
        await parts.checkpointing.emit_flat(report, batch)
        await parts.checkpointing.emit_sparse(report, batch, learned)
        await parts.checkpointing.emit_truncated(report)
        with progress.during("checkpoint"):
            covered = await parts.checkpointing.write(step + 1, batch, learned, report)
        with progress.during("publish"):
            pushed = await parts.versions.publish(step + 1)
        await parts.collector.ack_below(covered)
        await parts.checkpointing.emit_learned(_with_push(report, pushed), progress.phase_seconds)


def _with_push(report: TrainerPart, pushed: PushSeconds | None) -> TrainerPart:
    """``report`` with the times of the push that followed; of none where nothing was pushed."""
    if pushed is None:
        return report
    times = {"stage_s": round(pushed.stage, 4), "activate_s": round(pushed.activate, 4)}
    return replace(report, **times)
