"""Grades programs: runs them on tests in the sandbox and compares outside of it.

Owns which tests a program passes. Expected outputs stay in this process, except for a ``program``
checker, which gets them in a run of its own, long after the judged program has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from troupe_tasks.code import replay
from troupe_tasks.code.checkers import text_is_right, value_is_right
from troupe_tasks.code.judge import Case, Job, Judge, Ran
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
        self, problem: Problem, codes: Sequence[str], tests: Sequence[TestCase]
    ) -> list[list[Graded]]:
        """The same for several programs, in as few runs as the limits allow."""
        plain = [number for number, test in enumerate(tests) if test.script is None]
        graded = self._grade_plain(problem, codes, [tests[number] for number in plain])
        if len(plain) == len(tests):
            return graded
        return [
            self._with_scripts(problem, code, tests, dict(zip(plain, grades, strict=True)))
            for code, grades in zip(codes, graded, strict=True)
        ]

    def outputs(self, problem: Problem, code: str, inputs: Sequence[str]) -> list[Ran]:
        """What ``code`` does on inputs whose outputs nobody knows."""
        cases = [_case(problem, 0, text) for text in inputs]
        return self._judge.run([_job(problem, code)], cases, problem.limits, 16 * MIN_OUTPUT_BYTES)

    def agree(self, problem: Problem, claims: Sequence[tuple[TestCase, str]]) -> list[bool]:
        """Whether each claimed output is right, where the test's own is the reference's."""
        tests = [test for test, _ in claims]
        ran = [_claimed(problem, output) for _, output in claims]
        return [graded.passed for graded in self._compared(problem, tests, ran)]

    def _with_scripts(
        self, problem: Problem, code: str, tests: Sequence[TestCase], plain: dict[int, Graded]
    ) -> list[Graded]:
        scripts = [number for number, test in enumerate(tests) if test.script is not None]
        verdicts = replay.grade_scripts(
            self._judge, problem, _job(problem, code), [tests[n].script or "" for n in scripts]
        )
        scripted = {n: Graded(v.passed, v.ran) for n, v in zip(scripts, verdicts, strict=True)}
        return [plain[n] if n in plain else scripted[n] for n in range(len(tests))]

    def _grade_plain(
        self, problem: Problem, codes: Sequence[str], tests: Sequence[TestCase]
    ) -> list[list[Graded]]:
        if not tests:
            return [[] for _ in codes]
        room = _output_bytes(tests)
        # One program a run when there are many tests, so that a slow one costs only itself.
        share = max(1, 12 // len(tests))
        graded: list[list[Graded]] = []
        for start in range(0, len(codes), share):
            part = codes[start : start + share]
            jobs = [_job(problem, code) for code in part]
            cases = [_case(problem, n, t.input) for n in range(len(part)) for t in tests]
            ran = self._judge.run(jobs, cases, problem.limits, room)
            for n in range(len(part)):
                mine = ran[n * len(tests) : (n + 1) * len(tests)]
                graded.append(self._compared(problem, tests, mine))
        return graded

    def _compared(
        self, problem: Problem, tests: Sequence[TestCase], ran: Sequence[Ran]
    ) -> list[Graded]:
        if problem.checker.kind == "program":
            rights = self._checked_by_program(problem, tests, ran)
        else:
            rights = [_is_right(problem, t, r) for t, r in zip(tests, ran, strict=True)]
        return [Graded(right, r) for right, r in zip(rights, ran, strict=True)]

    def _checked_by_program(
        self, problem: Problem, tests: Sequence[TestCase], ran: Sequence[Ran]
    ) -> list[bool]:
        finished = [n for n, run in enumerate(ran) if _has_ended_well(problem, run)]
        cases = [
            Case(0, fields={"args": _checker_arguments(problem, tests[n], ran[n])})
            for n in finished
        ]
        job = Job("call", problem.checker.source, "check")
        checks = self._judge.run([job], cases, CHECKER_LIMITS, MIN_OUTPUT_BYTES)
        right = {n for n, run in zip(finished, checks, strict=True) if run.value is True}
        return [n in right for n in range(len(ran))]


def _job(problem: Problem, code: str) -> Job:
    source = "\n\n".join(part for part in (problem.prelude, code, problem.epilogue) if part)
    return Job(problem.kind, source, problem.entry_point)


def _case(problem: Problem, job: int, text: str) -> Case:
    if problem.kind == "stdin":
        return Case(job, input=text)
    return Case(job, fields={"args": [encode(arg) for arg in parse_arguments(text)]})


def _output_bytes(tests: Sequence[TestCase]) -> int:
    """Twice the longest right output, as a power of two: generous, and it tells nothing."""
    longest = max(len(text) for test in tests for text in (test.output, *test.alternatives))
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


def _is_right(problem: Problem, test: TestCase, ran: Ran) -> bool:
    if not _has_ended_well(problem, ran):
        return False
    if problem.kind == "stdin":
        return text_is_right(problem.checker, test, ran.output)
    return value_is_right(problem.checker, test, ran.value)


def _checker_arguments(problem: Problem, test: TestCase, ran: Ran) -> list[Value]:
    if problem.kind == "stdin":
        return [test.input, test.output, ran.output]
    try:
        expected = parse_literal(test.output)
    except UnreadableError:
        expected = None
    return [encode(v) for v in (parse_arguments(test.input), expected, ran.value)]
