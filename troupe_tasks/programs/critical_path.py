"""How long a run takes if calls that wait at once are answered at once: its critical path.

Calls that a program makes before it has the answers that it waits for are one stage. A stage costs
what its slowest call costs, and the path is the sum over the stages. No clock is read: a run that
is answered the same has the same path.

Source: critical steps of PARL (Kimi K2.5's report): the sum over stages of the slowest sub-agent.
"""

from collections.abc import Sequence
from typing import Literal

from troupe.wire.body import num_tokens
from troupe_tasks.programs.calls import ModelCall

PATH_TERM = "critical_path"
"""Local term: the length of the critical path of the whole run, paid at its end."""

PathUnit = Literal["calls", "tokens"]
"""What a call costs: 1, or about the tokens of its answer."""


class CriticalPath:
    """The stages of one run. Its calls must be answered stage by stage (see ``first``)."""

    def __init__(self, unit: PathUnit) -> None:
        self._unit = unit
        self._stages: dict[int, int] = {}
        self._now = -1
        self._costs: list[float] = []

    def first(self, waiting: Sequence[ModelCall]) -> list[ModelCall]:
        """The calls of the earliest stage that waits.

        A call that was not seen before belongs to the stage after that of the last answer. Only
        then is it sure which calls needed which answers: so later stages are not shown yet.
        """
        for call in waiting:
            self._stages.setdefault(call.number, self._now + 1)
        earliest = min((self._stages[call.number] for call in waiting), default=0)
        return [call for call in waiting if self._stages[call.number] == earliest]

    def answered(self, call: ModelCall, text: str) -> None:
        """A call of the earliest stage is answered by ``text``."""
        self._now = self._stages[call.number]
        cost = float(num_tokens([text])) if self._unit == "tokens" else 1.0
        self._costs += [0.0] * (self._now + 1 - len(self._costs))
        self._costs[self._now] = max(self._costs[self._now], cost)

    @property
    def length(self) -> float:
        """Calls one after the other, or thousands of tokens.

        Example: a planner's call, three workers at once and the planner again: 3 calls of 5.
        """
        return sum(self._costs) / (1000.0 if self._unit == "tokens" else 1.0)
