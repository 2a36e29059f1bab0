"""The windows of a step's first minibatch that are computed, some before the round is over.

Owns which these are and what their micro-batches gave. Their gradients are `gradient_sums`'. Never
lays out, and never steps an optimizer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from troupe_trainer.learn.gradient_sums import GradientSum, Pass
from troupe_trainer.learn.layout import Batches
from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.samples import CreditedGroup


@dataclass(frozen=True, slots=True)
class Window:
    """A window that was computed: its groups, and the sums of its micro-batches."""

    groups: Sequence[CreditedGroup]
    parts: Sequence[Minibatch]


class Ahead:
    """The computed windows of one step, whose gradients go to ``gradients``."""

    def __init__(self, gradients: GradientSum) -> None:
        self._gradients = gradients
        self._windows: dict[int, Window] = {}
        self.turn = 0
        """The first window that is not computed."""

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def groups(self) -> dict[int, Sequence[CreditedGroup]]:
        """Of each window that is computed."""
        return {number: window.groups for number, window in self._windows.items()}

    @property
    def end(self) -> int:
        """One more than the last window that is computed."""
        return max(self._windows, default=-1) + 1

    def __contains__(self, window: int) -> bool:
        return window in self._windows

    def next_of(self, windows: Iterable[int]) -> int | None:
        """Which of these to compute now; None when all are, or none has room to wait."""
        rest = [window for window in windows if window not in self._windows]
        return self._gradients.next_of(rest, self.turn)

    def take(
        self, window: int, groups: Sequence[CreditedGroup], batches: Batches, compute: Pass
    ) -> None:
        """Compute ``window``, whose ``groups`` have these micro-batches."""
        self._windows[window] = Window(groups, self._gradients.add(window, batches, compute))
        while self.turn in self._windows:
            self.turn += 1

    def fits(self, windows: Mapping[int, Sequence[CreditedGroup]]) -> bool:
        """Whether what is computed is of the very groups of ``windows``.

        If not, a group came after its ticket's window was computed: it must be computed again.
        """
        return all(
            len(window.groups) == len(windows.get(number, ()))
            and not any(map(_differ, window.groups, windows.get(number, ())))
            for number, window in self._windows.items()
        )

    def finish(self) -> Iterator[Minibatch]:
        """Leave the sum in the parameters' gradient; the micro-batches' sums in order."""
        self._gradients.finish()
        for number in sorted(self._windows):
            yield from self._windows[number].parts


def _differ(one: CreditedGroup, other: CreditedGroup) -> bool:
    return one.record is not other.record
