"""Windows of tickets: which groups share micro-batches in a step's first minibatch.

A window holds tickets in a row, so what is in one depends neither on the other tickets nor on the
order in which they end: it can be computed as soon as its tickets are played. Pure; a function of
the spec (on a GPU of the tokens of a pass that fit it), of what is trained and of the ids of
tickets: a restart, or another machine's room for gradients or speed, changes nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby

from troupe.ids import ticket_position
from troupe.samplers.cost import draws_per_act
from troupe.samplers.sampler import Sampler
from troupe.spec.job import JobSpec
from troupe_trainer.samples import CreditedGroup

LEAST_TOKENS = 256
"""Tickets of fewer tokens than this share a window: a pass over few tokens costs as much as one
over these, and each adds to the gradient."""
FEWEST = 8
"""Where gradients are summed in turn, a window holds up to an eighth of the round's tickets: it
waits for others anyway, and each adds to all weights."""


class Windows:
    """The windows of one policy's rounds."""

    def __init__(self, spec: JobSpec, sampler: Sampler, *, is_exact: bool) -> None:
        """``is_exact``: they are added in any order, so none waits but for its own tickets."""
        self._starts = _starts(spec.tasks_per_step, *_sizes(spec, sampler, is_exact=is_exact))

    def count(self, num_tickets: int) -> int:
        """Windows of a round of ``num_tickets``."""
        return self.of(num_tickets - 1) + 1

    def of(self, position: int) -> int:
        """The window of the ticket at ``position``; further ones belong to the last."""
        return bisect_right(self._starts, position) - 1

    def tickets_of(self, window: int, num_tickets: int) -> range:
        """Positions of the tickets of ``window``."""
        ends = [*self._starts[1:], num_tickets]
        return range(self._starts[window], min(num_tickets, ends[window]))

    def split(self, groups: Sequence[CreditedGroup]) -> dict[int, list[CreditedGroup]]:
        """The groups of each window, in the order of the windows."""

        def window(group: CreditedGroup) -> int:
            return self.of(ticket_position(group.record.ticket_id))

        return {key: list(of) for key, of in groupby(sorted(groups, key=window), key=window)}


def _sizes(spec: JobSpec, sampler: Sampler, *, is_exact: bool) -> tuple[int, int]:
    """The fewest and the most tickets of a window; both fit a micro-batch, or are 1.

    Example: 8 candidates of at most 10 tokens, drawn by one agent for 2 turns, are 160 tokens, so
    one such ticket is a window. In turn, up to 8 of 64 tickets are.
    """
    draws = draws_per_act(sampler, spec) * spec.workflow.max_turns
    limits = [spec.sampling_for(agent).max_new_tokens for agent in spec.workflow.order]
    num_tokens = max(1, draws * sum(limits))
    budget = spec.batch.budget
    room = max(1, budget * spec.algorithm.minibatches // num_tokens)
    fewest = min(room, max(1, LEAST_TOKENS // num_tokens))
    most = fewest if is_exact else min(room, max(fewest, spec.tasks_per_step // FEWEST))
    return fewest, most


def _starts(num_tickets: int, fewest: int, most: int) -> list[int]:
    """The first ticket of each window: it holds ``most``, or half of the tickets that are left.

    So the last ones are smaller, down to ``fewest``: they are learnt from when nothing is played.
    Example: ten tickets, 1 to 4 in a window: 0, 4, 7, 9.
    """
    starts, start = [0], 0
    while start < num_tickets:
        half = -(-(num_tickets - start) // 2)
        start += min(most, max(fewest, half))
        starts.append(start)
    return starts[:-1]
