"""Waits for the evaluation of the weights that serve: no version is published before it is over.

Strictly on-policy, a version is evaluated in the tail of its training round and while it is learnt
from. Owns that wait. Never opens a round.
"""

import time
from collections.abc import Awaitable, Callable

from troupe.errors import JobFailedError
from troupe.ids import eval_round
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.round_state import RoundState
from troupe.spec.job import JobSpec
from troupe_trainer.control import Control

_LOOK_S = 1.0
_UNOPENED_S = 5.0
"""An evaluation that is not open for so long may wait for memory of Redis."""


class Evaluations:
    """The evaluations of one job. ``ledger`` is this waiter's own.

    ``is_colocated``: the servers leave the device to the learners, so they must have played it.
    """

    def __init__(
        self,
        spec: JobSpec,
        ledger: StepLedger,
        control: Control,
        make_room: Callable[[], Awaitable[None]],
        *,
        is_colocated: bool,
    ) -> None:
        self._steps = frozenset(() if spec.max_staleness else spec.eval_steps())
        self._policies = tuple(spec.policies)
        self._timeout_s = spec.limits.step_timeout_s
        self._ledger = ledger
        self._control = control
        self._make_room = make_room
        self._is_colocated = is_colocated

    async def before_learning(self, step: int) -> None:
        """Wait as ``before_publishing`` where learning needs the device that plays."""
        if self._is_colocated:
            await self.before_publishing(step)

    async def before_publishing(self, step: int) -> None:
        """Wait until the evaluation of version ``step`` is recorded, if one is due.

        Raises:
            JobFailedError: not within ``limits.step_timeout_s`` of its opening.
            StoppedError: the job was asked to stop.
            FencedError: another trainer has taken over.
        """
        if step not in self._steps:
            return
        began = time.monotonic()
        deadline, look_at, is_open = began + self._timeout_s, began + _UNOPENED_S, False
        while not await self._is_over(step, state := await self._ledger.round(eval_round(step))):
            if state is not None and not is_open:
                deadline, is_open = time.monotonic() + self._timeout_s, True
            if state is None and time.monotonic() > look_at:
                await self._make_room()
                look_at = time.monotonic() + _UNOPENED_S
            if time.monotonic() > deadline:
                raise JobFailedError(
                    f"Waited limits.step_timeout_s = {self._timeout_s:g} s for the evaluation of "
                    f"version {step}, which is {'not over' if is_open else 'not begun'}; the "
                    "router conducts it, so look at its log and at the replicas'."
                )
            await self._ledger.wait_change(_LOOK_S)

    async def _is_over(self, step: int, state: RoundState | None) -> bool:
        """Whether it is recorded, or every policy is past it, as when a step is learnt again."""
        self._control.raise_if_stopped()
        await self._ledger.check()
        if state is not None and state.is_recorded:
            return True
        versions = await self._ledger.versions()
        return all(versions.get(policy, -1) > step for policy in self._policies)
