"""Two ways to sum the gradients of a round's windows: as whole numbers, or in turn.

The bits of either sum do not depend on when the windows come. Owns what is held and its limit.
Never lays out, and never steps an optimizer.

`Exact` rounds each micro-batch's gradient to a fixed grid and adds whole numbers, which is the same
in any order: nothing waits, however many windows there are. A parameter's gradient is added and
freed inside the backward pass, so the sum takes the memory of two gradients and there is no third.
`InTurn` adds each micro-batch to the parameters' gradient in the order of the windows. It holds one
gradient, and one more of each micro-batch that is early.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest

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
"""What is larger than half of it is split: whole multiples are summed apart. So 2 ** 17 passes
stay within 63 bits, and a gradient may be as large as float32 allows."""
CHUNK = 1 << 18
"""Numbers that are rounded at once, a MB: the copies stay in the processor's cache."""
DEVICE_CHUNK = 1 << 23
"""Those of an accelerator, 32 MB: its kernels take longer than to launch them."""


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
    """Adds gradients as they come, in whole multiples of `FINE`, where the parameters are."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(parameters)
        self._sums = [ChunkSum(chunk) for chunk in _chunks(parameters)]

    def next_of(self, windows: Collection[int], turn: int) -> int | None:
        return min(windows, default=None)

    def add(self, window: int, batches: Batches, compute: Pass) -> list[Minibatch]:
        with ExitStack() as hooks:
            for total in self._sums:
                for remove in total.hooks():
                    hooks.callback(remove)
            return [self._added(compute(blocks)) for blocks in batches]

    def finish(self) -> None:
        for total in self._sums:
            total.finish()

    def _added(self, part: Minibatch) -> Minibatch:
        for total in self._sums:
            total.add()
        return part


class ChunkSum:
    """The sum of the gradients of some parameters, each of which is freed when it was added."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._total = WholeSum()
        self._reached: set[nn.Parameter] = set()
        self._num_there = 0

    def hooks(self) -> Iterator[Callable[[], None]]:
        """Add in each backward pass as soon as all gradients are there; what removes that."""
        for parameter in self._parameters:
            yield parameter.register_post_accumulate_grad_hook(self._arrived).remove

    def add(self) -> None:
        """Add what is there, and free it."""
        self._num_there = 0
        reached = [parameter for parameter in self._parameters if parameter.grad is not None]
        if reached:
            self._reached.update(reached)
            gradients = [
                torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters
            ]
            for parameter in reached:
                parameter.grad = None
            self._total.add(_in_one(gradients))

    def finish(self) -> None:
        """Leave the sum in the parameters' gradient; those that no loss has reached have none."""
        if self._reached:
            parts = self._total.take().split([p.numel() for p in self._parameters])
            for parameter, part in zip(self._parameters, parts, strict=True):
                if parameter in self._reached:
                    parameter.grad = part.view_as(parameter).to(parameter.dtype)

    def _arrived(self, _: Tensor) -> None:
        self._num_there += 1
        if self._num_there == len(self._parameters):
            self.add()


class WholeSum:
    """A sum of vectors of one length, exact in multiples of `FINE`."""

    def __init__(self) -> None:
        self._fine: Tensor | None = None
        self._coarse: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Add ``values``, each rounded to the grid."""
        if self._fine is None:
            self._fine = torch.zeros_like(values, dtype=torch.int64)
        size = _at_once(values)
        for place, part in enumerate(values.split(size)):
            rest = part.float()
            if _has_large(rest):
                if self._coarse is None:
                    self._coarse = torch.zeros_like(values, dtype=torch.float64)
                coarse = (rest / COARSE).round_()
                rest = rest - coarse * COARSE
                self._coarse.split(size)[place].add_(coarse)
            self._fine.split(size)[place].add_((rest / FINE).round_().long())

    def take(self) -> Tensor:
        """The sum, rounded once to float32; it is 0 and holds nothing then. Not before ``add``."""
        assert self._fine is not None
        total = torch.empty_like(self._fine, dtype=torch.float32)
        size = _at_once(total)
        coarse = () if self._coarse is None else self._coarse.split(size)
        parts = zip_longest(total.split(size), self._fine.split(size), coarse)
        for into, fine, rest in parts:
            exact = fine.double().mul_(FINE)
            into.copy_(exact if rest is None else exact.add_(rest, alpha=COARSE))
        self._fine = self._coarse = None
        return total


def _has_large(values: Tensor) -> bool:
    """Whether one of them must be split. Also one that is not finite: so is the sum then."""
    low, high = torch.aminmax(values)
    return not bool(torch.maximum(high, -low) < COARSE / 2)


def _in_one(gradients: Sequence[Tensor]) -> Tensor:
    """All numbers in one vector, which is not copied where there is one gradient."""
    flat = [gradient.reshape(-1) for gradient in gradients]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _at_once(numbers: Tensor) -> int:
    """How many numbers are rounded at once."""
    return CHUNK if numbers.device.type == "cpu" else DEVICE_CHUNK


def _chunks(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters that follow each other, as many as are rounded at once, or one larger one."""
    chunk: list[nn.Parameter] = []
    for parameter in parameters:
        if chunk and sum(p.numel() for p in chunk) + parameter.numel() > _at_once(parameter):
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
