"""Dynamic sampling: a ticket whose groups have no variance plays another task instead.

Chooses that task and decides whether groups have variance. The player counts: the episode's
``num_redraws`` is the number of tasks played in vain.

Source: DAPO (arXiv 2503.14476), Section 3.2.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from troupe.algorithms.advantages import ZERO_STD
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GroupOutcome, group_outcome
from troupe.samplers.sampler import GroupingKey
from troupe.seeds import derive_seed

_ENDLESS = 2**31
"""Bound of the indices drawn for an infinite split."""


Advantages = Callable[[GroupOutcome], Sequence[float]]


def has_variance(
    groups: Sequence[pb.Group], grouping: GroupingKey, advantages: Advantages | None = None
) -> bool:
    """Whether some group teaches: by its ``advantages``, else where what candidates earned differs.

    Groups of "turns" hold the acts of whole episodes; an act earned what came from it on.

    Example: rewards 1, 1, 1, 1 and 0, 1, 0, 0 of two groups: True, by the second.
    """
    if advantages is not None:
        try:
            return any(any(advantages(group_outcome(group))) for group in groups)
        except OverflowError:  # of a reward that the trainer refuses and counts
            return True
    earned = _to_go if grouping == "turns" else _rewards
    return any(_differ(list(earned(group))) for group in groups)


def _differ(rewards: Sequence[float]) -> bool:
    """By more than rounding."""
    return bool(rewards) and not max(rewards) - min(rewards) < ZERO_STD


def _rewards(group: pb.Group) -> Iterable[float]:
    return group.lead_returns or (c.reward for c in group.candidates)


def _to_go(group: pb.Group) -> Iterable[float]:
    left: defaultdict[int, float] = defaultdict(float)
    for candidate in sorted(group.candidates, key=lambda c: -c.turn):
        left[candidate.trajectory] += candidate.reward
        yield left[candidate.trajectory]


def redrawn_index(ticket: pb.Ticket, attempt: int, *, seed: int, size: int | None) -> int:
    """Index of the task that ``ticket`` plays in its ``attempt``-th redraw (from 1).

    None that it has played before, while its split has others.
    """
    bound, again = size or _ENDLESS, [ticket.occurrence] if ticket.occurrence else []
    index, played = ticket.task_index, {ticket.task_index}
    for number in range(1, attempt + 1):
        path = (ticket.round_id, ticket.task_index, number, *again)
        index = derive_seed(seed, "redraw", *path) % bound
        while index in played and len(played) < bound:
            index = (index + 1) % bound
        played.add(index)
    return index


def play_again(ticket: pb.Ticket, attempt: int, *, size: int | None) -> tuple[str | int, ...]:
    """What tells this play of a task from others of it in the round; empty for the first.

    A redraw of an endless split meets no task of the round's others.
    """
    if attempt and size is not None:
        return ("redraw", ticket.task_index, ticket.occurrence, attempt)
    return (ticket.occurrence,) if ticket.occurrence else ()
