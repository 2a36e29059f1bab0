"""What the way of summing a round's gradients costs: of `overlap`.

Real are the two sums (`troupe_trainer.learn.gradient_sums`), on a parameter of one number, and the
windows (`troupe_trainer.learn.windows`). Simulated are the times: tickets end as in
`benchmarks.overlap`, a window is learnt when its tickets have ended and there is room, and after
the round the rest follows at once. So the rows do not depend on the machine.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from troupe_trainer.learn.gradient_sums import Exact, GradientSum, InTurn
from troupe_trainer.learn.outcome import Minibatch

SEEDS = 25
Round = tuple[Sequence[float], Sequence[float]]
"""When each ticket ends, as a share of playing, and its share of the learning."""
Way = Callable[[nn.Parameter], GradientSum]
ADDITION = 0.1
"""What adding all of SmolLM2's weights exactly costs, in the learning of a ticket of the mean
length: 0.2 s (`benchmarks.sum_cost`) of about 2 s. An adapter's takes 1.4 s (results/overlap.md, "A
real job"), and the gradients of the weights half as much again, computed."""
SUMS: dict[str, tuple[bool, Way, float]] = {
    "exact": (True, lambda parameter: Exact([parameter]), 0.0),
    "exact, full weights": (True, lambda parameter: Exact([parameter]), ADDITION),
    **{
        f"in turn, {held} held": (
            False,
            lambda parameter, held=held: InTurn([parameter], 4 * held),
            0.0,
        )
        for held in (0, 3)
    },
}
"""Exactly, where an addition costs next to nothing (adapters) and where it does not; in turn, full
weights without room for any and, as SmolLM2's, for three. Whether the windows are those of exact
sums, and what an addition costs."""


def sum_row(
    windows: Callable[[bool], Sequence[range]], rounds: Sequence[Round], ratio: float
) -> dict[str, Any]:
    """Of each way to sum: medians of step time over the longer of playing and learning.

    ``windows``: the round's, of exact sums or of those in turn. ``ratio``: learning over playing.
    """
    row: dict[str, Any] = {"n": len(rounds)}
    for name, (is_exact, how, addition) in SUMS.items():
        places = windows(is_exact)
        tickets = sum(map(len, places))
        steps = [_step(how, places, ratio, addition * ratio / tickets, *of) for of in rounds]
        row[name] = {"windows": len(places), "step": round(statistics.median(steps), 2)}
    return row


def _step(
    how: Way,
    windows: Sequence[range],
    ratio: float,
    addition: float,
    ends: Sequence[float],
    costs: Sequence[float],
) -> float:
    """The step's time, playing being 1 and longer than learning."""
    ready = [max(ends[ticket] for ticket in window) for window in windows]
    cost = [ratio * sum(costs[ticket] for ticket in window) + addition for window in windows]
    parameter = nn.Parameter(torch.zeros(1))
    total = how(parameter)

    def compute(_: Any) -> Minibatch:
        ones = torch.ones(1)
        parameter.grad = ones if parameter.grad is None else parameter.grad.add_(ones)
        return Minibatch(sums=defaultdict(float))

    rest, now = set(range(len(windows))), 0.0
    while rest and now < 1.0:
        window = total.next_of([w for w in sorted(rest) if ready[w] <= now], min(rest))
        if window is None:
            now = min([at for w in rest if (at := ready[w]) > now], default=1.0)
            continue
        total.add(window, [()], compute)
        rest.remove(window)
        now += cost[window]
    return max(now, 1.0) + sum(cost[window] for window in rest)
