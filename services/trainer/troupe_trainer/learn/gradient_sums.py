"""Two ways to sum the gradients of a round's windows: in turn, or pair by pair.

The additions of each, and so the bits of the sum, do not depend on when the windows come. Owns what
is held and its limit. Never lays out, and never steps an optimizer.

`InTurn` adds each micro-batch to the parameters' gradient in the order of the windows. It holds
nothing while none is early, and one gradient of each micro-batch that is. `Paired` sums a window
apart, then it and its neighbour, then two such pairs, and so on: of 32 windows that end in any
order about 12 sums wait at once, where in turn it would be 31.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence

from torch import Tensor, nn

from troupe_trainer.learn.layout import Batches
from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.model.packing import Block

Pass = Callable[[Sequence[Block]], Minibatch]
"""One micro-batch, forward and backward: adds to the parameters' gradient."""
Gradient = Sequence[Tensor | None]
"""Of each trained parameter; None for one that no loss has reached."""
Node = tuple[int, int]
"""2 ** level windows in a row: the level, and how many such rows are before it."""


class GradientSum(ABC):
    """The sum over the windows of one step; each window is added once.

    ``held_bytes`` limits the gradients that wait for others to be added to.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], held_bytes: int) -> None:
        self._parameters = parameters
        size = sum(p.numel() * p.element_size() for p in parameters)
        self._most_held = held_bytes // max(1, size)

    @abstractmethod
    def next_of(self, windows: Collection[int], turn: int) -> int | None:
        """Which of these to add next; None when there is no room for any.

        ``turn`` is the first window that was not added: it needs no room.
        """

    @abstractmethod
    def add(self, window: int, batches: Batches, compute: Pass) -> list[Minibatch]:
        """Compute a window and add its gradient; the sums of each of its micro-batches."""

    @abstractmethod
    def finish(self) -> None:
        """Leave the sum in the parameters' gradient, when all windows are there."""

    def _take(self) -> Gradient:
        """The parameters' gradient, now on the host; they have none any more."""
        gradient = [None if p.grad is None else p.grad.cpu() for p in self._parameters]
        self._put([None] * len(self._parameters))
        return gradient

    def _put(self, gradient: Gradient) -> None:
        for parameter, tensor in zip(self._parameters, gradient, strict=True):
            parameter.grad = None if tensor is None else tensor.to(parameter.device)


class InTurn(GradientSum):
    """Adds one micro-batch after another, in the order of the windows."""

    def __init__(self, parameters: Sequence[nn.Parameter], held_bytes: int) -> None:
        super().__init__(parameters, held_bytes)
        self._held: dict[int, list[Gradient]] = {}
        self._turn = 0

    def next_of(self, windows: Collection[int], turn: int) -> int | None:
        has_room = sum(map(len, self._held.values())) < self._most_held
        return min(windows, default=None) if has_room or turn in windows else None

    def add(self, window: int, batches: Batches, compute: Pass) -> list[Minibatch]:
        if window != self._turn:
            return self._hold(window, batches, compute)
        parts = [compute(blocks) for blocks in batches]
        self._turn += 1
        while (held := self._held.pop(self._turn, None)) is not None:
            for gradient in held:
                total = [parameter.grad for parameter in self._parameters]
                self._put(_sum(total, self._on_device(gradient)))
            self._turn += 1
        return parts

    def finish(self) -> None:
        """It is there already."""

    def _hold(self, window: int, batches: Batches, compute: Pass) -> list[Minibatch]:
        """Compute each micro-batch alone; the parameters' gradient stays as it was."""
        total = [parameter.grad for parameter in self._parameters]
        parts, held = list[Minibatch](), list[Gradient]()
        try:
            for blocks in batches:
                self._put([None] * len(total))
                parts.append(compute(blocks))
                held.append(self._take())
        finally:
            self._put(total)
        self._held[window] = held
        return parts

    def _on_device(self, gradient: Gradient) -> Gradient:
        return [
            None if tensor is None else tensor.to(parameter.device)
            for parameter, tensor in zip(self._parameters, gradient, strict=True)
        ]


class Paired(GradientSum):
    """Adds neighbours, then neighbouring pairs, and so on, on the host in every case."""

    def __init__(self, parameters: Sequence[nn.Parameter], held_bytes: int) -> None:
        super().__init__(parameters, held_bytes)
        self._sums: dict[Node, Gradient] = {}

    def next_of(self, windows: Collection[int], turn: int) -> int | None:
        """The one after which the fewest sums wait."""
        best = min(windows, key=lambda window: (self._waiting_after(window), window), default=None)
        if best is None or self._waiting_after(best) <= self._most_held:
            return best
        return turn if turn in windows else None

    def add(self, window: int, batches: Batches, compute: Pass) -> list[Minibatch]:
        parts = [compute(blocks) for blocks in batches]
        node, gradient = (0, window), self._take()
        while (other := self._sums.pop(_neighbour(node), None)) is not None:
            node, gradient = _parent(node), _sum(other, gradient)
        self._sums[node] = gradient
        return parts

    def finish(self) -> None:
        end = max(((place + 1) << level for level, place in self._sums), default=1)
        self._put(self._sum_of(((end - 1).bit_length(), 0)))

    def _sum_of(self, node: Node) -> Gradient:
        """The sum of a row of windows, of which those after the last one are missing."""
        if (gradient := self._sums.pop(node, None)) is not None:
            return gradient
        level, place = node
        if level == 0:
            return [None] * len(self._parameters)
        first = self._sum_of((level - 1, 2 * place))
        return _sum(first, self._sum_of((level - 1, 2 * place + 1)))

    def _waiting_after(self, window: int) -> int:
        node, waiting = (0, window), len(self._sums) + 1
        while _neighbour(node) in self._sums:
            node, waiting = _parent(node), waiting - 1
        return waiting


def _neighbour(node: Node) -> Node:
    return node[0], node[1] ^ 1


def _parent(node: Node) -> Node:
    return node[0] + 1, node[1] >> 1


def _sum(one: Gradient, other: Gradient) -> Gradient:
    """One addition a parameter, in the place of ``one`` where it has a gradient."""
    return [
        right if left is None else left if right is None else left.add_(right)
        for left, right in zip(one, other, strict=True)
    ]
