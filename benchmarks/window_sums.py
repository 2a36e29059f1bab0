"""How many sums of gradients wait in a round, and what too little room costs: of `overlap`.

Real are the two sums (`troupe_trainer.learn.gradient_sums`), on a parameter of one number.
Simulated are the times: tickets end as in `benchmarks.overlap`, a window is learnt when its tickets
have ended and there is room, and after the round the rest follows at once. So the rows do not
depend on the machine.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from troupe_trainer.learn.gradient_sums import GradientSum, InTurn, Paired
from troupe_trainer.learn.outcome import Minibatch

SEEDS = 25
HELD = (6, 12, 30, 1000)
SUMS: Sequence[tuple[str, type[GradientSum], int]] = (
    ("in turn", InTurn, 256),
    ("in turn", InTurn, 32),
    ("pair by pair", Paired, 32),
    ("pair by pair", Paired, 64),
)
RATIO = 0.9
"""Learning over playing."""


def sum_rows(rounds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[dict[str, Any]]:
    """Of each way to sum: medians of step time over the longer of playing and learning.

    ``rounds``: when each ticket ends, as a share of playing, and its share of the learning.
    """
    return [
        {
            "sum": name,
            "windows": windows,
            **{
                f"held_{held}": round(
                    statistics.median(_step(how, windows, held, *of) for of in rounds), 2
                )
                for held in HELD
            },
            "n": len(rounds),
        }
        for name, how, windows in SUMS
    ]


def _step(
    how: type[GradientSum], windows: int, held: int, ends: Sequence[float], costs: Sequence[float]
) -> float:
    """The step's time, playing being 1 and longer than learning."""
    size = -(-len(ends) // windows)
    places = [slice(first, first + size) for first in range(0, len(ends), size)]
    ready = [max(ends[place]) for place in places]
    cost = [RATIO * sum(costs[place]) for place in places]
    parameter = nn.Parameter(torch.zeros(1))
    total = how([parameter], held * parameter.element_size())

    def compute(_: Any) -> Minibatch:
        ones = torch.ones(1)
        parameter.grad = ones if parameter.grad is None else parameter.grad.add_(ones)
        return Minibatch(sums=defaultdict(float))

    rest, now = set(range(len(places))), 0.0
    while rest and now < 1.0:
        window = total.next_of([w for w in sorted(rest) if ready[w] <= now], min(rest))
        if window is None:
            now = min([at for w in rest if (at := ready[w]) > now], default=1.0)
            continue
        total.add(window, [()], compute)
        rest.remove(window)
        now += cost[window]
    return max(now, 1.0) + sum(cost[window] for window in rest)
