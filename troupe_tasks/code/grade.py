"""Grades programs: runs them on tests in the sandbox and compares outside of it.

Owns which tests a program passes. Expected outputs stay in this process, except for a ``program``
checker, which gets them in a run of its own, after the judged program has ended.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from troupe_tasks.code import replay
from troupe_tasks.code.checkers import text_is_right, value_is_right
from troupe_tasks.code.judge import Budget, Case, Job, Judge, Ran
from troupe_tasks.code.problem import Problem, ProgramLimits, TestCase
from troupe_tasks.code.values import (
    UnreadableError,
    Value,
    encode,
    parse_arguments,
    parse_literal,
)

MIN_OUTPUT_BYTES = 4096
CHECKER_LIMITS = ProgramLimits()
_FUTURES = re.compile(r"(?:[ \t]*(?:#[^\n]*|from __future__ import [^\n]*)?\n)*")


@dataclass(frozen=True, slots=True)
class Graded:
    """One test of one program: whether it passed, and what the program did."""

    passed: bool
    ran: Ran


class Grader:
    """Grades programs on the tests of a problem."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def grade(self, problem: Problem, code: str, tests: Sequence[TestCase]) -> list[Graded]:
        """What ``code`` does on ``tests``, in order."""
        return self.grade_all(problem, [code], tests)[0]

    def grade_all(
        self,
        problem: Problem,
        codes: Sequence[str],
        tests: Sequence[TestCase],
        judgings: float = 1.0,
    ) -> list[list[Graded]]:
        """The same for several programs, each by itself: a slow one costs no other a test.

        They share the time of ``judgings`` evenly.
        """
        share = judgings / max(1, len(codes))
        return [self._grade(problem, code, tests, self._judge.budget(share)) for code in codes]

    def outputs(self, problem: Problem, code: str, inputs: Sequence[str]) -> list[Ran]:
        """What ``code`` does on inputs whose outputs nobody knows. With `agree` on them it takes
        one judging."""
        cases = [_case(problem, text) for text in inputs]
        budget = self._judge.budget(0.5 if _has_program(problem) else 1.0)
        room = 16 * MIN_OUTPUT_BYTES
        return self._judge.run([_job(problem, code)], cases, problem.limits, room, budget)

    def agree(self, problem: Problem, claims: Sequence[tuple[TestCase, str]]) -> list[bool]:
        """Whether each claimed output is right, where the test's own is the reference's."""
        checks = self._judge.budget(0.5)
        return [
            self._is_right(problem, test, _claimed(problem, output), checks)
            for test, output in claims
        ]

    def _grade(
        self, problem: Problem, code: str, tests: Sequence[TestCase], budget: Budget
    ) -> list[Graded]:
        """Each test with its checks before the next, so that time that ends takes the last ones;
        scripts come after all others."""
        job, room = _job(problem, code), _output_bytes(tests)
        graded: dict[int, Graded] = {}
        for number, test in enumerate(tests):
            if test.script is None:
                case = _case(problem, test.input)
                [ran] = self._judge.run([job], [case], problem.limits, room, budget)
                graded[number] = Graded(self._is_right(problem, test, ran, budget), ran)
        for number, test in enumerate(tests):
            if test.script is not None:
                verdict = replay.grade_script(self._judge, problem, job, test.script, budget)
                graded[number] = Graded(verdict.passed, verdict.ran)
        return [graded[number] for number in range(len(tests))]

    def _is_right(self, problem: Problem, test: TestCase, ran: Ran, budget: Budget) -> bool:
        if not _has_ended_well(problem, ran):
            return False
        if _has_program(problem):
            job = Job("call", problem.checker.source, "check")
            case = Case(0, fields={"args": _checker_arguments(problem, test, ran)})
            [check] = self._judge.run([job], [case], CHECKER_LIMITS, MIN_OUTPUT_BYTES, budget)
            return check.value is True
        if problem.kind == "stdin":
            return text_is_right(problem.checker, test, ran.output)
        return value_is_right(problem.checker, test, ran.value)


def _job(problem: Problem, code: str) -> Job:
    # What Python wants first: comments and `from __future__` imports that the program begins with.
    futures = _FUTURES.match(code)
    head = futures[0] if futures and problem.prelude and "__future__" in futures[0] else ""
    parts = (head, problem.prelude, code[len(head) :], problem.epilogue)
    source = "\n\n".join(part for part in parts if part)
    return Job(problem.kind, source, problem.entry_point)


def _case(problem: Problem, text: str) -> Case:
    if problem.kind == "stdin":
        return Case(0, input=text)
    return Case(0, fields={"args": [encode(arg) for arg in parse_arguments(text)]})


def _output_bytes(tests: Sequence[TestCase]) -> int:
    """Twice the longest right output, as a power of two: generous, and it tells nothing."""
    outputs = (text for test in tests for text in (test.output, *test.alternatives))
    longest = max(map(len, outputs), default=0)
    return max(MIN_OUTPUT_BYTES, 1 << (2 * longest).bit_length())


def _claimed(problem: Problem, output: str) -> Ran:
    """An output that somebody wrote down, as if a program had given it."""
    if problem.kind == "stdin":
        return Ran("ok", output)
    try:
        return Ran("ok", value=parse_literal(output), has_value=True)
    except UnreadableError as error:
        return Ran("value", error=str(error))


def _has_ended_well(problem: Problem, ran: Ran) -> bool:
    return ran.status == "ok" and (problem.kind == "stdin" or ran.has_value)


def _has_program(problem: Problem) -> bool:
    return problem.checker.kind == "program"


def _checker_arguments(problem: Problem, test: TestCase, ran: Ran) -> list[Value]:
    if problem.kind == "stdin":
        return [test.input, test.output, ran.output]
    try:
        expected = parse_literal(test.output)
    except UnreadableError:
        expected = None
    return [encode(v) for v in (parse_arguments(test.input), expected, ran.value)]
