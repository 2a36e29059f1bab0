"""Checks that tasks are the same everywhere, in any order, and never in two splits."""

from collections.abc import Iterable, Iterator
from random import Random

from troupe.conformance import digest
from troupe.conformance.findings import claimed, clipped, tolerant
from troupe.conformance.subject import Clock, Subject
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task, Taskset
from troupe.tasks.optional import split_key_of


def tasks_seeded(subject: Subject) -> None:
    """A new taskset, queried in another order, gives the same tasks."""
    keys = _task_keys(subject.taskset, subject.limits.num_draws)
    forward = {key: subject.taskset.task(*key) for key in keys}
    shuffled = list(keys)
    Random(subject.limits.seed).shuffle(shuffled)
    for name, taskset in (("again", subject.taskset), ("made anew", subject.family.taskset())):
        for key in shuffled:
            again = taskset.task(*key)
            if again != forward[key]:
                subject.findings.fail(
                    "tasks_seeded",
                    f"{key[0]} task {key[1]} of the taskset {name}, asked in another order, is "
                    f"{digest.of_task(again)}; it was {digest.of_task(forward[key])}",
                )
    ids = [task.id for task in forward.values()]
    if len(set(ids)) != len(ids):
        subject.findings.fail("tasks_seeded", "two tasks share an id")
    for (split, index), task in forward.items():
        labels = (task.split, task.index)
        if labels != (split, index) or not isinstance(claimed(task.payload), bytes):
            subject.findings.fail(
                "tasks_seeded", f"task({split!r}, {index}) is labelled {digest.of_task(task)}"
            )
    subject.findings.fact("tasks_seeded", f"{len(keys)} tasks, drawn three times")


def task_range(subject: Subject) -> None:
    """Indices outside a split are refused as the caller's mistake."""
    taskset = subject.taskset
    for split in SPLITS:
        size = taskset.size(split)
        if size is not None and size < 0:
            subject.findings.fail("task_range", f"size({split!r}) is {size}")
        for index in (-1, *(() if size is None else (size, size + 10**6))):
            try:
                taskset.task(split, index)
            except InvalidArgumentError:
                continue
            except (Exception, SystemExit) as error:
                subject.findings.fail(
                    "task_range", f"task({split!r}, {index}) raised {type(error).__name__}: {error}"
                )
            else:
                subject.findings.fail(
                    "task_range", f"task({split!r}, {index}) is accepted; the size is {size}"
                )
        subject.findings.fact("task_range", f"{split}: {'without end' if size is None else size}")


def splits_disjoint(subject: Subject) -> None:
    """No payload and no twin is in two splits; equal first prompts are pointed at."""
    clock = subject.share(0.15)
    owners: dict[str, Task] = {}
    keys: dict[str, Task] = {}
    prompts: dict[str, Task] = {}
    counts: dict[Split, int] = dict.fromkeys(SPLITS, 0)
    for task in _interleaved(subject, clock):
        counts[task.split] += 1
        other = owners.setdefault(digest.short(task.payload), task)
        if other.split != task.split:
            subject.findings.fail(
                "splits_disjoint", f"{other.id} and {task.id} are one: {clipped(task.payload)}"
            )
            continue
        _see_key(subject, task, keys)
        if counts[task.split] <= 30:
            _see_prompt(subject, task, prompts)
    tried = ", ".join(f"{count} {split}" for split, count in counts.items())
    subject.findings.fact("splits_disjoint", f"compared {tried}")


def _see_key(subject: Subject, task: Task, keys: dict[str, Task]) -> None:
    key = split_key_of(subject.family, task)
    if key is None:
        return
    other = keys.setdefault(digest.short(key.encode()), task)
    if other.split != task.split:
        subject.findings.fail("splits_disjoint", f"{other.id} and {task.id} are twins: {key[:200]}")


def _see_prompt(subject: Subject, task: Task, prompts: dict[str, Task]) -> None:
    with tolerant():
        state = subject.env.reset(task)
        shown = " ".join(
            digest.of_messages(subject.env.observe(state, agent)) for agent in subject.family.agents
        )
        other = prompts.setdefault(shown, task)
        if other.split != task.split:
            subject.findings.warn(
                "splits_disjoint",
                f"{other.id} and {task.id} have different payloads and equal first prompts",
            )


def _interleaved(subject: Subject, clock: Clock) -> Iterator[Task]:
    """Tasks of all splits in turn: all of a small finite split, else a sample."""
    limits = subject.limits
    sizes = {split: subject.taskset.size(split) for split in SPLITS}
    counts = {
        split: limits.split_sample if size is None else min(size, limits.split_whole)
        for split, size in sizes.items()
    }
    for index in range(max(counts.values())):
        if clock.is_over and index >= 20:
            return
        for split in SPLITS:
            if index < counts[split]:
                yield subject.taskset.task(split, index)


def _task_keys(taskset: Taskset, count: int) -> list[tuple[Split, int]]:
    return [(split, index) for split in SPLITS for index in _indices(taskset.size(split), count)]


def _indices(size: int | None, count: int) -> Iterable[int]:
    """The first indices and some distant ones: random access must not depend on earlier calls."""
    end = 10**6 if size is None else size
    if end <= count:
        return range(end)
    step = max((end - count // 2) // (count // 2), 1)
    return sorted({*range(count // 2), *range(count // 2, end, step)})
