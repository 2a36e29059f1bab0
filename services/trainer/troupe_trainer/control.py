"""The job's progress, and users' requests to pause or stop it.

The servicer reads the progress; the loop writes it. Owns phase times, pausing and stopping.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from troupe.ids import train_round
from troupe.runtime.telemetry.tracing import round_span


class StoppedError(Exception):
    """The job was asked to stop between two optimizer steps; not a failure."""


@dataclass(slots=True)
class TrainerProgress:
    """The present state of one trainer. ``phase_seconds`` are those of the current step."""

    job_id: str = ""
    step: int = 0
    num_steps: int = 0
    phase: str = "idle"
    phase_started: float = field(default_factory=time.monotonic)
    policy_versions: dict[str, int] = field(default_factory=dict[str, int])
    phase_seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def during(self, phase: str) -> Generator[None]:
        """Enter ``phase`` for the block and add up its time."""
        self.enter(phase)
        try:
            with round_span(f"trainer.{phase}", self.job_id, train_round(self.step)):
                yield
        finally:
            passed = time.monotonic() - self.phase_started
            self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + passed

    def enter(self, phase: str) -> None:
        """Enter ``phase``."""
        self.phase = phase
        self.phase_started = time.monotonic()

    def count_as(self, phase: str, seconds: float, *, of: str) -> None:
        """Count ``seconds`` of phase ``of``, which is over, as ``phase``."""
        self.phase_seconds[of] -= seconds
        self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + seconds

    def begin_step(self, step: int) -> None:
        """Reset the phase times."""
        self.step = step
        self.phase_seconds = {}


class Control:
    """Pause, resume and stop. All are idempotent and take effect between optimizer steps."""

    def __init__(self) -> None:
        self._runs = asyncio.Event()
        self._runs.set()
        self._stops = asyncio.Event()
        self._reason = ""

    @property
    def is_paused(self) -> bool:
        """True between pause and resume."""
        return not self._runs.is_set() and not self._reason

    def pause(self) -> None:
        """Pause before the next optimizer step."""
        if not self._reason:
            self._runs.clear()

    def resume(self) -> None:
        """Continue."""
        self._runs.set()

    def stop(self, reason: str) -> None:
        """Stop at the next point where no work is half done."""
        self._reason = self._reason or reason or "stopped"
        self._runs.set()
        self._stops.set()

    def raise_if_stopped(self) -> None:
        """Raises StoppedError after ``stop``."""
        if self._reason:
            raise StoppedError(self._reason)

    async def stopped(self) -> None:
        """Wait for ``stop``."""
        await self._stops.wait()

    async def gate(self) -> None:
        """Wait while paused (as long as the user wants); raises StoppedError after ``stop``."""
        await self._runs.wait()
        self.raise_if_stopped()
