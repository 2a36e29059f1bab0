"""What a test is worth by the programs that it tells apart: rows are programs, columns are tests.

Source: CURE (arXiv 2506.03136) and its code, Gen-Verse/CURE `optimization/reward.py` at commit
69fe174: with R the programs that pass every hidden test and W the others, a test that every program
of R passes earns the share of W that fails it, and any other test minus the share of W that passes
it. Nobody needs to know the right output: right programs say it.

Here W holds only programs that pass the public tests, since the others are told apart without a new
test, and a test earns 0 where R or W is empty (there: its sign where W is). So a test that repeats
an example, in whatever spelling, catches nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Cell = Literal["passed", "failed", "late"]
"""What one program did on one test; a late one was not finished, or not run."""


@dataclass(frozen=True, slots=True)
class Program:
    """A candidate of the coder: its text, its hidden pass rate, whether it passes public tests."""

    code: str
    rate: float
    is_plausible: bool

    @property
    def is_right(self) -> bool:
        """Whether it passes every hidden test."""
        return self.rate >= 1.0


def worth_of_tests(programs: Sequence[Program], cells: Sequence[Sequence[Cell]]) -> list[float]:
    """What each test earns, -1 to 1; ``cells`` has a row for each program.

    A late program is not caught, since a heavy input would make any late.

    Example: programs right, right, wrong, wrong and a test that they pass, pass, fail, pass earns
    1/2; one that they pass, fail, fail, pass earns -1/2.
    """
    right = [row for program, row in zip(programs, cells, strict=True) if program.is_right]
    wrong = [
        row
        for program, row in zip(programs, cells, strict=True)
        if program.is_plausible and not program.is_right
    ]
    num_tests = len(cells[0]) if cells else 0
    if not right or not wrong:
        return [0.0] * num_tests
    return [
        sum(row[test] == "failed" for row in wrong) / len(wrong)
        if all(row[test] == "passed" for row in right)
        else -sum(row[test] == "passed" for row in wrong) / len(wrong)
        for test in range(num_tests)
    ]


def chosen(cells: Sequence[Sequence[Cell]]) -> int:
    """The program that passes most tests, the first of equals."""
    return max(range(len(cells)), key=lambda n: (sum(c == "passed" for c in cells[n]), -n))
