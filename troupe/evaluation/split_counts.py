"""Counts the different tasks of each split, and how sure a success measured on them is.

Draws tasks; never plays one.
"""

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256

from troupe.evaluation.estimators import wilson
from troupe.tasks.family import SPLITS, Split, Task, TaskFamily
from troupe.tasks.optional import split_key_of


@dataclass(frozen=True, slots=True)
class SplitCount:
    """The first ``num_drawn`` tasks of a split, of ``size`` in all (None: without end).

    ``num_different`` tasks are no copies of each other; ``num_keys`` no twins either (None where
    the family says nothing of twins), ``num_of_commonest`` share one key and ``num_shared`` keys
    (without keys: tasks) are another split's too. ``margin`` is half the width of a 95 % interval
    (Wilson) around a success of 0.5 over the different tasks, ``key_margin`` over the keys: how far
    what is measured may be from the success on tasks with new keys, if tasks of one key stand or
    fall together.

    Example: ``SplitCount("test", None, 500, 455, 24, 31, 0, 0.046, 0.186)``.
    """

    split: Split
    size: int | None
    num_drawn: int
    num_different: int
    num_keys: int | None
    num_of_commonest: int | None
    num_shared: int
    margin: float | None
    key_margin: float | None


def count_splits(family: TaskFamily, num_tasks: int) -> list[SplitCount]:
    """Of the first ``num_tasks`` tasks of each split that has any."""
    taskset = family.taskset()
    drawn: dict[Split, list[Task]] = {}
    for split in SPLITS:
        size = taskset.size(split)
        drawn[split] = [
            taskset.task(split, index)
            for index in range(num_tasks if size is None else min(size, num_tasks))
        ]
    keys = {split: _keys(family, tasks) for split, tasks in drawn.items()}
    digests = {split: {sha256(t.payload).digest() for t in tasks} for split, tasks in drawn.items()}
    found: list[SplitCount] = []
    for split, tasks in drawn.items():
        if not tasks:
            continue
        own, others = keys[split], [other for other in SPLITS if other != split]
        twins = own.keys() & {key for other in others for key in keys[other]}
        copies = {copy for other in others for copy in digests[split] & digests[other]}
        num_different = len(digests[split])
        found.append(
            SplitCount(
                split=split,
                size=taskset.size(split),
                num_drawn=len(tasks),
                num_different=num_different,
                num_keys=len(own) or None,
                num_of_commonest=max(own.values(), default=None),
                num_shared=len(twins) if own else len(copies),
                margin=_margin(num_different),
                key_margin=_margin(len(own)),
            )
        )
    return found


def _keys(family: TaskFamily, tasks: list[Task]) -> Counter[str]:
    """Key -> its tasks; empty where a task has none."""
    keys = [split_key_of(family, task) for task in tasks]
    named = [key for key in keys if key is not None]
    return Counter(named) if len(named) == len(keys) else Counter()


def _margin(number: int) -> float | None:
    if not number:
        return None
    low, high = wilson(0.5, number)
    return round((high - low) / 2, 4)
