"""Judges the tester's tests by the reference and by programs that are known to be wrong.

Nothing here looks at the coder's program: a tester is paid for its tests, never for the coder's
luck.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from troupe_tasks.code.grade import Graded, Grader
from troupe_tasks.code.judge import Ran
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.spelling import meaning
from troupe_tasks.code.state import Proposal, Verdict

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class JudgedTests:
    """The tester's tests with their verdicts.

    ``valid_share`` is the share of tests that are valid; ``caught_share`` the share of the known
    wrong programs that fail at least one valid test.
    """

    proposals: tuple[Proposal, ...]
    valid_share: float
    caught_share: float


def judge_tests(grader: Grader, problem: Problem, pairs: Sequence[Pair]) -> JudgedTests:
    """Verdicts and shares for the tests of one answer."""
    if not problem.references:
        return _by_public_tests(grader, problem, pairs)
    fresh = fresh_tests(problem, pairs)
    ran = grader.outputs(problem, problem.references[0], [pairs[n][0] for n in fresh])
    truths = {
        n: truth
        for n, execution in zip(fresh, ran, strict=True)
        if (truth := _truth(problem, pairs[n][0], execution)) is not None
    }
    disguised = _disguised(problem, truths)
    fresh = [n for n in fresh if n not in disguised]
    truths = {n: truth for n, truth in truths.items() if n not in disguised}
    right = grader.agree(problem, [(truths[n], pairs[n][1]) for n in truths])
    valid = {n: truth for (n, truth), ok in zip(truths.items(), right, strict=True) if ok}
    proposals = tuple(Proposal(*p, _verdict(n, fresh, valid)) for n, p in enumerate(pairs))
    caught = _caught_share(grader, problem, list(valid.values()))
    return JudgedTests(proposals, len(valid) / max(1, len(pairs)), caught)


def _by_public_tests(grader: Grader, problem: Problem, pairs: Sequence[Pair]) -> JudgedTests:
    """Without a reference only the public tests are known: a test of one of their inputs is valid
    when it agrees, and any other is unknown and pays nothing."""
    public = {_key(problem, t.input): t for t in problem.public_tests if t.script is None}
    numbers = [n for n, (test_input, _) in enumerate(pairs) if _key(problem, test_input) in public]
    claims = [(public[_key(problem, pairs[n][0])], pairs[n][1]) for n in numbers]
    agreed = dict(zip(numbers, grader.agree(problem, claims), strict=True))
    proposals = tuple(
        Proposal(*pair, "unknown" if n not in agreed else "repeat" if agreed[n] else "wrong")
        for n, pair in enumerate(pairs)
    )
    return JudgedTests(proposals, sum(agreed.values()) / max(1, len(pairs)), 0.0)


def fresh_tests(problem: Problem, pairs: Sequence[Pair]) -> list[int]:
    """Tests whose input is neither that of a public test nor of an earlier one."""
    keys = {_key(problem, test.input) for test in problem.public_tests if test.script is None}
    fresh: list[int] = []
    for number, (test_input, _) in enumerate(pairs):
        key = _key(problem, test_input)
        if key not in keys:
            keys.add(key)
            fresh.append(number)
    return fresh


def _key(problem: Problem, test_input: str) -> str:
    return " ".join(test_input.split()) if problem.kind == "stdin" else "".join(test_input.split())


def _disguised(problem: Problem, truths: Mapping[int, TestCase]) -> set[int]:
    """Tests that repeat a public or an earlier one in another spelling, with the same output.

    ``f(1.0)``, ``f(True)`` and ``f(1)``; ``+03`` and ``3``; and a standard input with words behind
    it that the program does not read. They cost nothing to make and test nothing.
    """
    known = [meaning(problem, t) for t in problem.public_tests if t.script is None]
    repeated: set[int] = set()
    for number, test in truths.items():
        given, output = meaning(problem, test)
        if any(output == right and _begins(given, shorter) for shorter, right in known):
            repeated.add(number)
        else:
            known.append((given, output))
    return repeated


def _begins(words: Sequence[str], shorter: Sequence[str]) -> bool:
    return bool(shorter) and words[: len(shorter)] == shorter


def _truth(problem: Problem, test_input: str, ran: Ran) -> TestCase | None:
    """The test with the reference's own output, or None when the input breaks the reference."""
    if ran.status != "ok" or (problem.kind == "call" and not ran.has_value):
        return None
    output = ran.output if problem.kind == "stdin" else repr(ran.value)
    return TestCase(input=test_input, output=output)


def _verdict(number: int, fresh: Sequence[int], valid: dict[int, TestCase]) -> Verdict:
    if number not in fresh:
        return "repeat"
    return "valid" if number in valid else "wrong"


def _is_caught(graded: Graded) -> bool:
    """Wrong by what it did. A program that ran late, or was not run as others did, is not caught:
    a tester could make all programs late with inputs that the reference just manages."""
    return not graded.passed and graded.ran.status not in ("time", "skipped")


def _caught_share(grader: Grader, problem: Problem, tests: Sequence[TestCase]) -> float:
    if not tests or not problem.wrong_programs:
        return 0.0
    graded = grader.grade_all(problem, problem.wrong_programs, tests)
    caught = [any(_is_caught(test) for test in program) for program in graded]
    return sum(caught) / len(caught)
