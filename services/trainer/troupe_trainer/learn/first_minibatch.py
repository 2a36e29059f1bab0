"""The first minibatch of a step, summed window by window, some of them before the round is over.

Owns which windows are computed and which are not yet. Only of the first one: the others meet
weights that it moves. Never runs over several ranks, and never steps an optimizer.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from troupe_trainer.learn.ahead import Ahead
from troupe_trainer.learn.gradient_sums import GradientSum, Pass
from troupe_trainer.learn.layout import Batches, Layout
from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.model.packing import Block
from troupe_trainer.samples import CreditedGroup

Windows = Mapping[int, Sequence[CreditedGroup]]
"""The groups of each window that has any."""


class FirstMinibatch:
    """That of one step, as ``layout`` lays it out; its gradient goes to one of ``gradients``."""

    def __init__(self, layout: Layout, gradients: Callable[[], GradientSum]) -> None:
        self._layout = layout
        self._gradients = gradients
        self._ahead = Ahead(gradients())
        self._rest: dict[int, tuple[Sequence[CreditedGroup], Batches]] = {}

    @property
    def is_begun(self) -> bool:
        """Whether any window is computed."""
        return len(self._ahead) > 0

    def next_window(self, num_tickets: int, finished: Collection[int]) -> int | None:
        """A window whose tickets are all ``finished`` and that ``take`` may compute."""
        return self._ahead.next_of(
            window
            for window in range(self._ahead.turn, self._layout.num_windows(num_tickets))
            if all(t in finished for t in self._layout.tickets_of(window, num_tickets))
        )

    def take(self, window: int, groups: Sequence[CreditedGroup], compute: Pass) -> None:
        """Compute ``window``; ``groups`` are all of it in this minibatch."""
        self._ahead.take(window, groups, self._layout.microbatches(groups), compute)

    def fits(self, windows: Windows) -> bool:
        """Whether what is computed is of the very groups of ``windows``."""
        return self._ahead.fits(windows)

    def rest(self, windows: Windows) -> list[Sequence[Block]]:
        """The micro-batches of those of ``windows`` that are not computed; ``finish`` does it."""
        self._rest = {
            number: (groups, self._layout.microbatches(groups))
            for number, groups in windows.items()
            if number not in self._ahead
        }
        return [blocks for _, batches in self._rest.values() for blocks in batches]

    def restart(self) -> None:
        """Let ``finish`` compute all windows anew; the parameters' gradient was given up."""
        for number, groups in self._ahead.groups.items():
            self._rest[number] = (groups, self._layout.microbatches(groups))
        self._ahead = Ahead(self._gradients())

    def finish(self, compute: Pass) -> Minibatch:
        """Compute the rest, and leave the sum of all windows in the parameters' gradient."""
        outcome = Minibatch(sums=defaultdict(float))
        for number in range(max(self._ahead.end, *(n + 1 for n in self._rest), 0)):
            if number not in self._ahead:  # one without groups too: those after it have their turn
                groups, batches = self._rest.get(number, ((), ()))
                self._ahead.take(number, groups, batches, compute)
        for part in self._ahead.finish():
            outcome.add(part)
        return outcome
