"""Windows of tickets: which groups share micro-batches in a step's first minibatch.

A window is a fixed number of tickets in a row, so what is in one depends neither on the other
tickets nor on the order in which they end: it can be computed as soon as its tickets are played.
Pure; a function of the spec and the ids of tickets.
"""

from collections.abc import Sequence
from itertools import groupby

from troupe.ids import ticket_position
from troupe.samplers.cost import draws_per_act
from troupe.samplers.sampler import Sampler
from troupe.spec.job import JobSpec
from troupe_trainer.samples import CreditedGroup

FEWEST = 8
"""A round has at least so many windows, or one for each ticket: the last one is learnt from when
nothing is played any more."""
SMALLEST = 256
"""Fewer windows where they would have fewer tokens than this: each adds to every gradient, which
then costs as much as its tokens."""
MOST_PAIRED = 32
"""A round has at most so many windows where each is summed apart: what waits is of windows then."""


def tickets_per_window(spec: JobSpec, sampler: Sampler, *, most: int | None = None) -> int:
    """As many tickets as may fill a micro-batch with completions of the first minibatch.

    More if a round would else have over ``most`` windows.

    Example: 8 candidates of at most 100 tokens, drawn by one agent for 2 turns, are 1,600 tokens;
    in 4,096 tokens there is room for 2 such tickets, or for 4 with two minibatches.
    """
    draws = draws_per_act(sampler, spec) * spec.workflow.max_turns
    limits = [spec.sampling_for(agent).max_new_tokens for agent in spec.workflow.order]
    num_tokens = max(1, draws * sum(limits))
    budget = spec.batch.budget
    room = budget * spec.algorithm.minibatches // num_tokens
    fewest = 1 if most is None else -(-spec.tasks_per_step // most)
    return max(fewest, min(room, max(spec.tasks_per_step // FEWEST, SMALLEST // num_tokens)))


def by_window(groups: Sequence[CreditedGroup], size: int) -> dict[int, list[CreditedGroup]]:
    """The groups of each window of ``size`` tickets, in the order of the windows."""

    def window(group: CreditedGroup) -> int:
        return ticket_position(group.record.ticket_id) // size

    return {key: list(of) for key, of in groupby(sorted(groups, key=window), key=window)}
