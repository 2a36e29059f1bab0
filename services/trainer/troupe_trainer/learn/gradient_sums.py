"""Two ways to sum the gradients of a round's windows: as whole numbers, or in turn.

The bits of either sum do not depend on when the windows come. Owns what is held and its limit.
Never lays out, and never steps an optimizer.

`Exact` rounds each window's gradient to a fixed grid and adds whole numbers, which is the same in
any order: nothing waits, and it holds two gradients however many windows there are. `InTurn` adds
each micro-batch to the parameters' gradient in the order of the windows. It holds nothing while
none is early, and one gradient of each micro-batch that is: for full weights two gradients more
would be too many.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor, nn

from troupe_trainer.learn.layout import Batches
from troupe_trainer.learn.outcome import Minibatch
from troupe_trainer.model.packing import Block

Pass = Callable[[Sequence[Block]], Minibatch]
"""One micro-batch, forward and backward: adds to the parameters' gradient."""
Gradient = Sequence[Tensor | None]
"""Of each trained parameter; None for one that no loss has reached."""

FINE = 2.0**-36
"""The grid: 1.5e-11, of gradients that are not divided by the round's tokens yet. That is finer
than float32 from 1.2e-4 up, and far below AdamW's eps after the division."""
COARSE = 2.0**10
"""What is larger than half of it is split: whole multiples are summed apart. So 2 ** 17 windows
stay within 63 bits, and a gradient may be as large as float32 allows."""
CHUNK = 1 << 18
"""Numbers that are rounded at once, a MB: the copies stay in the processor's cache."""


class GradientSum(ABC):
    """The sum over the windows of one step; each window is added once."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters

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

    def _put(self, gradient: Gradient) -> None:
        for parameter, tensor in zip(self._parameters, gradient, strict=True):
            parameter.grad = None if tensor is None else tensor.to(parameter.device)


class Exact(GradientSum):
    """Adds windows as they come, in whole multiples of `FINE`, where the parameters are."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(parameters)
        self._sums = [WholeSum() for _ in _chunks(parameters)]
        self._reached: set[nn.Parameter] = set()

    def next_of(self, windows: Collection[int], turn: int) -> int | None:
        return min(windows, default=None)

    def add(self, window: int, batches: Batches, compute: Pass) -> list[Minibatch]:
        parts = [compute(blocks) for blocks in batches]
        self._reached.update(p for p in self._parameters if p.grad is not None)
        for total, chunk in zip(self._sums, _chunks(self._parameters), strict=True):
            if any(parameter.grad is not None for parameter in chunk):
                gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in chunk]
                total.add(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        self._put([None] * len(self._parameters))
        return parts

    def finish(self) -> None:
        for total, chunk in zip(self._sums, _chunks(self._parameters), strict=True):
            if self._reached.intersection(chunk):
                parts = total.take().split([parameter.numel() for parameter in chunk])
                for parameter, part in zip(chunk, parts, strict=True):
                    if parameter in self._reached:
                        parameter.grad = part.view_as(parameter).to(parameter.dtype)


class WholeSum:
    """A sum of tensors of one shape, exact in multiples of `FINE`."""

    def __init__(self) -> None:
        self._fine: Tensor | None = None
        self._coarse: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Add ``values``, each rounded to the grid."""
        rest = values.float()
        # Also where one is not finite: so is the sum then.
        if not bool(torch.linalg.vector_norm(rest, torch.inf) < COARSE / 2):
            coarse = (rest / COARSE).round_()
            rest = rest - coarse * COARSE
            self._coarse = coarse.double() if self._coarse is None else self._coarse.add_(coarse)
        fine = (rest / FINE).round_().long()
        self._fine = fine if self._fine is None else self._fine.add_(fine)

    def take(self) -> Tensor:
        """The sum, rounded once to float32; it is 0 and holds nothing then. Not before ``add``."""
        assert self._fine is not None
        total = self._fine.double().mul_(FINE)
        if self._coarse is not None:
            total.add_(self._coarse, alpha=COARSE)
        self._fine = self._coarse = None
        return total.float()


def _chunks(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters that follow each other, of at most `CHUNK` numbers or of one parameter."""
    chunk: list[nn.Parameter] = []
    for parameter in parameters:
        if chunk and sum(p.numel() for p in chunk) + parameter.numel() > CHUNK:
            yield chunk
            chunk = []
        chunk.append(parameter)
    if chunk:
        yield chunk


class InTurn(GradientSum):
    """Adds one micro-batch after another, in the order of the windows.

    ``held_bytes`` limits the gradients that wait, on the host, for others to be added to.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], held_bytes: int) -> None:
        super().__init__(parameters)
        size = sum(p.numel() * p.element_size() for p in parameters)
        self._most_held = held_bytes // max(1, size)
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
                held.append([None if p.grad is None else p.grad.cpu() for p in self._parameters])
        finally:
            self._put(total)
        self._held[window] = held
        return parts

    def _on_device(self, gradient: Gradient) -> Gradient:
        return [
            None if tensor is None else tensor.to(parameter.device)
            for parameter, tensor in zip(self._parameters, gradient, strict=True)
        ]


def _sum(one: Gradient, other: Gradient) -> Gradient:
    """One addition a parameter, in the place of ``one`` where it has a gradient."""
    return [
        right if left is None else left if right is None else left.add_(right)
        for left, right in zip(one, other, strict=True)
    ]
