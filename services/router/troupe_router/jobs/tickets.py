"""Which tasks a round plays, and their tickets. Pure: same seed, same tickets."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import eval_round, ticket_id, train_round
from troupe.seeds import derive_seed
from troupe.spec import JobSpec
from troupe.tasks.family import Split

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


@dataclass(frozen=True, slots=True)
class RoundTasks:
    """The tasks of a round: its id, kind and step, their split, and their indices by position."""

    round_id: str
    kind: pb.RoundKind
    step: int
    split: Split
    indices: list[int]


SizeOf = Callable[[Split], int | None]
"""The number of tasks of a split, or None if it does not end."""


def train_tasks(spec: JobSpec, step: int, size: SizeOf) -> RoundTasks:
    """The training round of ``step``."""
    indices = train_indices(spec, step, size("train"))
    return RoundTasks(train_round(step), pb.ROUND_KIND_TRAIN, step, "train", indices)


def eval_tasks(spec: JobSpec, step: int, size: SizeOf) -> RoundTasks | None:
    """The evaluation of version ``step``; None where none is due."""
    if step not in spec.eval_steps():
        return None
    split = spec.eval.split
    indices = eval_indices(spec, size(split))
    return RoundTasks(eval_round(step), pb.ROUND_KIND_EVAL, step, split, indices)


def tasks_after(spec: JobSpec, step: int, size: SizeOf) -> RoundTasks | None:
    """The first round of the version that follows ``step``; None after the last.

    An evaluation is played in the tail of its version's training round, and alone only after the
    last step.
    """
    following = step + 1
    if following < spec.steps:
        return train_tasks(spec, following, size)
    return eval_tasks(spec, following, size) if following == spec.steps else None


def make_tickets(
    job_id: str,
    round_id: str,
    kind: pb.RoundKind,
    step: int,
    split: str,
    indices: list[int],
    versions: dict[str, int],
    opened_at: float,
    *,
    omits_tokens: bool = False,
) -> list[pb.Ticket]:
    """One ticket a task, in order. Tickets of one task are numbered, so that they draw anew."""
    before: defaultdict[int, int] = defaultdict(int)
    occurrences: list[int] = []
    for index in indices:
        occurrences.append(before[index])
        before[index] += 1
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
            omits_tokens=omits_tokens,
            occurrence=occurrence,
        )
        for position, (index, occurrence) in enumerate(zip(indices, occurrences, strict=True))
    ]
