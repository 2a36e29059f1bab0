"""Waits for the evaluation of the weights that serve: no later version is kept before it is over.

Strictly on-policy, a version is evaluated in the tail of its training round and while it is learnt
from. The next one's checkpoint waits: a trainer that went on from it could no longer give a replica
the version that is evaluated. Owns that wait. Never opens a round.
"""

import time
from collections.abc import Awaitable, Callable

from troupe.errors import JobFailedError
from troupe.ids import eval_round
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.round_state import RoundState
from troupe.spec.job import JobSpec
from troupe_trainer.control import Control
from troupe_trainer.learn.patience import Patience

_LOOK_S = 1.0
_MAKE_ROOM_S = 5.0
"""Between two looks at whether Redis lacks memory, for which the evaluation may wait."""


class Evaluations:
    """The evaluations of one job. ``ledger`` is this waiter's own.

    ``is_first``: learning waits too, since no replica can be given this version from then on: they
    leave the device to the learners, or take weights from the learners' own tensors.
    """

    def __init__(
        self,
        spec: JobSpec,
        ledger: StepLedger,
        control: Control,
        make_room: Callable[[], Awaitable[None]],
        *,
        is_first: bool,
    ) -> None:
        self._steps = frozenset(() if spec.max_staleness else spec.eval_steps())
        self._policies = tuple(spec.policies)
        self._timeout_s = spec.limits.step_timeout_s
        self._ledger = ledger
        self._control = control
        self._make_room = make_room
        self._is_first = is_first

    async def before_learning(self, step: int) -> None:
        """Wait as ``before_checkpoint`` where learning takes this version from the replicas."""
        if self._is_first:
            await self.before_checkpoint(step)

    async def before_checkpoint(self, step: int) -> None:
        """Wait until the evaluation of version ``step`` is recorded, if one is due.

        Raises:
            JobFailedError: not within ``limits.step_timeout_s`` of its opening, of the time in
                which a router conducts the job.
            StoppedError: the job was asked to stop.
            FencedError: another trainer has taken over.
        """
        if step not in self._steps:
            return
        patience = Patience(self._timeout_s, self._ledger.conducting)
        look_at, is_open = time.monotonic() + _MAKE_ROOM_S, False
        while not await self._is_over(step, state := await self._ledger.round(eval_round(step))):
            if state is not None and not is_open:
                patience.begin_anew()
                is_open = True
            if time.monotonic() > look_at:
                await self._make_room()
                look_at = time.monotonic() + _MAKE_ROOM_S
            if await patience.is_over():
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
