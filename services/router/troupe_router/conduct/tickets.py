"""Which tasks a round plays, and their tickets. Pure: same seed, same tickets."""

from random import Random

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import ticket_id
from troupe.seeds import derive_seed
from troupe.spec import JobSpec

_ENDLESS = 2**31
"""Indices of a split that does not end are drawn below this number."""


def train_indices(spec: JobSpec, step: int, size: int | None) -> list[int]:
    """Task indices of a training step.

    Without end: distinct draws. With ``size`` tasks: epochs, each in its own shuffled order.
    """
    count = spec.tasks_per_step
    if size is None:
        return Random(derive_seed(spec.seed, "tasks", step)).sample(range(_ENDLESS), count)
    orders: dict[int, list[int]] = {}
    indices: list[int] = []
    for position in range(step * count, (step + 1) * count):
        epoch, place = divmod(position, size)
        if epoch not in orders:
            orders[epoch] = list(range(size))
            Random(derive_seed(spec.seed, "tasks", epoch)).shuffle(orders[epoch])
        indices.append(orders[epoch][place])
    return indices


def eval_indices(spec: JobSpec, size: int | None) -> list[int]:
    """Task indices of every evaluation: always the same ones."""
    count = spec.eval.num_tasks
    return list(range(count if size is None else min(count, size)))


def make_tickets(
    job_id: str,
    round_id: str,
    kind: pb.RoundKind,
    step: int,
    split: str,
    indices: list[int],
    versions: dict[str, int],
    opened_at: float,
) -> list[pb.Ticket]:
    """One ticket a task, in order."""
    return [
        pb.Ticket(
            ticket_id=ticket_id(job_id, round_id, position),
            job_id=job_id,
            round_id=round_id,
            kind=kind,
            step=step,
            split=split,
            task_index=index,
            policy_versions=versions,
            opened_at=opened_at,
        )
        for position, index in enumerate(indices)
    ]
