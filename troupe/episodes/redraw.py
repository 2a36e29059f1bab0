"""Dynamic sampling: a ticket whose groups have no variance plays another task instead.

Chooses that task and decides whether groups have variance. The player counts: the episode's
``num_redraws`` is the number of tasks played in vain.

Source: DAPO (arXiv 2503.14476), Section 3.2.
"""

from collections.abc import Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.seeds import derive_seed

_ENDLESS = 2**31
"""Bound of the indices drawn for an infinite split."""


def has_variance(groups: Sequence[pb.Group]) -> bool:
    """Whether the rewards of some group differ.

    Example: rewards 1, 1, 1, 1 and 0, 1, 0, 0 of two groups: True, by the second.
    """
    return any(
        max(c.reward for c in group.candidates) > min(c.reward for c in group.candidates)
        for group in groups
    )


def redrawn_index(ticket: pb.Ticket, attempt: int, *, seed: int, size: int | None) -> int:
    """Index of the task that ``ticket`` plays in its ``attempt``-th redraw (from 1)."""
    number = derive_seed(seed, "redraw", ticket.round_id, ticket.task_index, attempt)
    return number % (_ENDLESS if size is None else size)
