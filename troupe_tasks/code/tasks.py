"""The problems of a family by split and index: the built-in ones, or prepared files.

Owns the order of problems and their lookup. A task's payload names its problem and carries the
hash of it, so that two env pods with different files never judge one episode.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from troupe.data.prepared import SplitRows
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.code.problem import Kind, Problem, read_problems, request_problem
from troupe_tasks.code.state import State, encode_task

BUILTIN = Path(__file__).with_name("builtin.jsonl")
MIN_SECRET_CHARS = 12
MAX_KEPT = 512
"""Problems of prepared files that are kept in memory."""

Source = Path | Mapping[Split, Path] | None


class Problems:
    """Problems by split and index; safe to use from several threads.

    ``kind`` keeps the built-in problems of that kind, and refuses others in prepared files.
    """

    def __init__(self, source: Source, *, kind: Kind | None = None) -> None:
        self._kind = kind
        self._rows = None if source is None else SplitRows(source, Problem)
        self._cache: OrderedDict[tuple[Split, int], tuple[Problem, str]] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, split: Split) -> int:
        """Number of problems in ``split``."""
        return len(self._builtin(split)) if self._rows is None else self._rows.size(split)

    def get(self, split: Split, index: int) -> tuple[Problem, str]:
        """The problem at ``index`` and its digest; raises InvalidArgumentError out of range."""
        if not 0 <= index < self.size(split):
            raise InvalidArgumentError(
                f"Code has {self.size(split)} {split} problems; there is no index {index}. Give "
                "the parameter 'data' a file with more."
            )
        with self._lock:
            if (split, index) in self._cache:
                self._cache.move_to_end((split, index))
                return self._cache[split, index]
        rows = self._rows
        problem = self._builtin(split)[index] if rows is None else rows.row(split, index)
        if self._kind not in (None, problem.kind):
            raise InvalidArgumentError(
                f"{problem.id!r} is a '{problem.kind}' problem, and this task takes "
                f"'{self._kind}' ones; give it other data, or use task 'code'."
            )
        entry = problem, problem.digest
        with self._lock:
            self._cache[split, index] = entry
            while len(self._cache) > MAX_KEPT:
                self._cache.popitem(last=False)
        return entry

    def refuse_shared(self) -> None:
        """Raises InvalidArgumentError when a held-out problem's statement is a train problem's."""
        if self._rows is not None:
            self._rows.refuse_shared(lambda problem: problem.compared)

    def _builtin(self, split: Split) -> Sequence[Problem]:
        return [p for p in builtin()[split] if self._kind in (None, p.kind)]

    def of_state(self, state: State) -> Problem:
        """The problem of a state: a user's request, or one of the files."""
        if state.asked:
            return request_problem(state.asked)
        return self.named(state.split, state.index, state.digest)

    def named(self, split: Split, index: int, digest: str) -> Problem:
        """The problem that a state names; raises InvalidArgumentError when it is another one."""
        problem, mine = self.get(split, index)
        if mine != digest:
            raise InvalidArgumentError(
                f"{split} problem {index} ({problem.id!r}) differs between this process and the "
                "one that began the episode; give both the same problem file."
            )
        return problem


def secrets_of(problem: Problem) -> list[str]:
    """Texts that no prompt may show: hidden tests, references and wrong programs.

    Short ones are left out: they may stand in any prompt by chance.
    """
    tests = [part for t in problem.hidden_tests for part in (t.input, t.output, t.script or "")]
    texts = [*tests, *problem.references, *problem.wrong_programs]
    return [text for text in (part.strip() for part in texts) if len(text) >= MIN_SECRET_CHARS]


class CodeTaskset:
    """Finite splits; ``index`` is the place of the problem in its split."""

    def __init__(self, name: str, problems: Problems) -> None:
        problems.refuse_shared()
        self._name = name
        self._problems = problems

    def size(self, split: Split) -> int | None:
        """Number of problems in the split."""
        return self._problems.size(split)

    def task(self, split: Split, index: int) -> Task:
        """The task of the problem at ``index``."""
        problem, digest = self._problems.get(split, index)
        payload = encode_task(split, index, problem.id, digest)
        return Task(f"{self._name}/{split}/{index}", split, index, payload)


@cache
def builtin() -> dict[Split, tuple[Problem, ...]]:
    """The problems written by this project, in an order that mixes their kinds."""
    problems = sorted(read_problems(BUILTIN), key=lambda problem: problem.digest)
    return {split: tuple(p for p in problems if p.own_split == split) for split in SPLITS}
