"""Deals a step's groups out to minibatches. Pure: the same groups and seed, the same shares.

A group's minibatch follows from its ticket alone, so it is known before other tickets are played.
"""

import random
from collections.abc import Sequence
from itertools import groupby

from troupe.ids import ticket_position
from troupe.seeds import derive_seed
from troupe_trainer.samples import CreditedGroup


def minibatches(
    groups: Sequence[CreditedGroup], count: int, seed: int, num_tickets: int
) -> Sequence[Sequence[CreditedGroup]]:
    """``count`` shares; each group is in one. ``groups`` of a ticket follow each other.

    A ticket's groups are drawn at random and dealt in turn, since in the order of their ids every
    n-th of them could be one agent's. The turn begins at another minibatch for each ticket, by a
    random order of the round's tickets, so that shares are of about equal size.
    """
    if count == 1:
        return [groups]
    places = random.Random(seed).sample(range(num_tickets), num_tickets)
    parts: list[list[CreditedGroup]] = [[] for _ in range(count)]
    for ticket, of_ticket in groupby(groups, key=lambda group: group.record.ticket_id):
        position, mine = ticket_position(ticket), list(of_ticket)
        random.Random(derive_seed(seed, position)).shuffle(mine)
        place = places[position % num_tickets]
        for turn, group in enumerate(mine):
            parts[(place + turn) % count].append(group)
    return parts
