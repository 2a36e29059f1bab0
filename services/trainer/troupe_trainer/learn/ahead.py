"""What a step's first minibatch has summed before its round was over, window by window.

The gradient is the sum of micro-batches in the order of their windows, one addition each. A window
whose turn it is adds to the parameters' gradient; one that is played earlier is computed alone and
held until its turn. So the operations on the sum, and its bits, do not depend on when the windows
came. Owns what is held and its limit. Never lays out, and never steps an optimizer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.model.packing import Block
from troupe_trainer.samples import CreditedGroup

Batches = Sequence[Sequence[Block]]
Pass = Callable[[Sequence[Block]], Minibatch]
"""One micro-batch, forward and backward: adds to the parameters' gradient."""


@dataclass(slots=True)
class Computed:
    """A micro-batch's sums, and its gradient (on the CPU) while that is held."""

    part: Minibatch
    held: Sequence[Tensor | None] | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A window that was computed: its groups, their micro-batches, and what these gave."""

    groups: Sequence[CreditedGroup]
    batches: Batches
    computed: Sequence[Computed]


class Ahead:
    """The windows of one step that were computed early.

    ``held_bytes`` limits the gradients that wait for their turn, but for one window's.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], held_bytes: int) -> None:
        self._parameters = parameters
        size = sum(p.numel() * p.element_size() for p in parameters)
        self._room = held_bytes // max(1, size)
        self._windows: dict[int, Window] = {}
        self.turn = 0
        """The first window that is not summed."""

    def __len__(self) -> int:
        return len(self._windows)

    def may_take(self, window: int) -> bool:
        """Whether ``window`` may be computed now: it was not, and its gradients can be held."""
        return window not in self._windows and (window == self.turn or self._room > 0)

    def take(
        self, window: int, groups: Sequence[CreditedGroup], batches: Batches, compute: Pass
    ) -> None:
        """Compute ``window``, whose ``groups`` have these micro-batches."""
        if window == self.turn:
            computed = [Computed(compute(blocks)) for blocks in batches]
        else:
            computed = [self._apart(blocks, compute) for blocks in batches]
            self._room -= len(batches)
        self._windows[window] = Window(groups, batches, computed)
        while self.turn in self._windows:
            for done in self._windows[self.turn].computed:
                self.settle(done)
            self.turn += 1

    def laid_out(self, windows: Mapping[int, Sequence[CreditedGroup]]) -> Mapping[int, Window]:
        """The computed windows by number, if their groups are those of ``windows``; else none.

        Then a group came after its ticket's window was computed: it must be computed again.
        """
        for number, window in self._windows.items():
            records = [group.record for group in windows.get(number, ())]
            mine = [group.record for group in window.groups]
            if len(mine) != len(records) or any(map(_differ, mine, records)):
                return {}
        return self._windows

    def settle(self, done: Computed) -> None:
        """Add a held gradient to the parameters', now that it is its turn."""
        if done.held is None:
            return
        for parameter, gradient in zip(self._parameters, done.held, strict=True):
            if gradient is not None and parameter.grad is None:
                parameter.grad = gradient.to(parameter.device)
            elif gradient is not None and parameter.grad is not None:
                parameter.grad.add_(gradient.to(parameter.device))
        done.held = None
        self._room += 1

    def _apart(self, blocks: Sequence[Block], compute: Pass) -> Computed:
        """Compute a micro-batch on its own; the parameters' gradient stays as it was."""
        sums = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        try:
            part = compute(blocks)
            held = [None if p.grad is None else p.grad.cpu() for p in self._parameters]
        finally:
            for parameter, gradient in zip(self._parameters, sums, strict=True):
                parameter.grad = gradient
        return Computed(part, held)


def _differ(one: object, other: object) -> bool:
    return one is not other
