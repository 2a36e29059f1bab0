"""Dynamic sampling: a ticket whose groups teach nothing plays another task instead.

Owns the choice of that task and the question whether groups teach anything. Counting is the
player's: each task that was played for nothing is in the episode's ``num_redraws``.

Source: DAPO (arXiv 2503.14476), Section 3.2.
"""

from collections.abc import Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.seeds import derive_seed

_ENDLESS = 2**31
"""Indices of a split that does not end are drawn below this number."""


def has_variance(groups: Sequence[pb.Group]) -> bool:
    """Some group has rewards that differ.

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
