"""The prompts of Code: what the tester and the coder read.

Shows the statement, public tests, the tester's tests and what the last program did on those.
Has no access to hidden tests, references or wrong programs by its own choice: they are never
read here, and a test searches every prompt for them.
"""

from collections.abc import Iterable

from troupe.tasks import quoting
from troupe.tasks.family import Message, Observation
from troupe_tasks.code.answers import function_name
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.state import Outcome, Proposal, State

TESTER, CODER = "tester", "coder"
AGENTS = (TESTER, CODER)

SHOWN_CHARS = 600
"""Longer inputs and outputs are cut in prompts."""
MAX_SHOWN_FAILURES = 3


def observation(problem: Problem, state: State, agent: str, max_tests: int) -> Observation:
    """The prompt of ``agent``: the problem, and what both agents did so far."""
    rules = (_tester_rules if agent == TESTER else _coder_rules)(problem, max_tests)
    parts = [problem.statement.strip()]
    if problem.starter_code.strip():
        parts.append(f"Starter code:\n{fenced(problem.starter_code, 'python')}")
    if problem.public_tests:
        shown = "\n".join(shown_test(problem, test) for test in problem.public_tests)
        parts.append(f"Examples:\n{shown}")
    parts += _history(problem, state, agent)
    return Message("system", rules), Message("user", "\n\n".join(parts))


def program_answer(code: str) -> str:
    """The text that ``answers.read_program`` reads as ``code``."""
    return fenced(code, "python")


def tests_answer(problem: Problem, tests: Iterable[tuple[str, str]]) -> str:
    """The text that ``answers.read_tests`` reads as ``tests``."""
    if problem.kind == "stdin":
        return "\n".join(_stdin_test(test_input, expected) for test_input, expected in tests)
    lines = [_assert_line(problem, test_input, expected) for test_input, expected in tests]
    return fenced("\n".join(lines), "python")


def shown_test(problem: Problem, test: TestCase) -> str:
    """One test as agents see it."""
    if test.script is not None:
        return fenced(test.script.replace("candidate", function_name(problem)), "python")
    if problem.kind == "stdin":
        return _stdin_test(test.input, test.output)
    return _assert_line(problem, test.input, test.output)


def cut(text: str) -> str:
    """``text``, or its two ends when it is long."""
    if len(text) <= SHOWN_CHARS:
        return text
    half = SHOWN_CHARS // 2
    return f"{text[:half]} ... [{len(text) - 2 * half} characters left out] ... {text[-half:]}"


def fenced(text: str, language: str = "") -> str:
    """``text`` in a fenced block, as answers are written. What agents wrote is quoted instead."""
    return f"```{language}\n{text if text.endswith(chr(10)) else text + chr(10)}```"


def _history(problem: Problem, state: State, agent: str) -> list[str]:
    parts: list[str] = []
    shown = [p for p in state.proposals if agent == TESTER or p.verdict in ("valid", "unknown")]
    if shown:
        owner = "Your tests of the last turn" if agent == TESTER else "Tests of the tester"
        parts.append(f"{owner}:\n" + "\n".join(_proposal(problem, p) for p in shown))
    if state.code:
        owner = "The coder's last program" if agent == TESTER else "Your last program"
        parts.append(f"{owner}:\n{quoting.fenced(state.code, 'python')}")
        parts.append(_feedback(problem, state, agent))
    return parts


def _feedback(problem: Problem, state: State, agent: str) -> str:
    pairs = zip(state.proposals, state.proposal_outcomes, strict=False)
    mine = [o for p, o in pairs if agent == TESTER or p.verdict in ("valid", "unknown")]
    outcomes = [*state.public_outcomes, *mine]
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if not outcomes:
        return "It has not been run on any test that you can see. It may still be wrong."
    if not failed:
        return (
            f"It passed all {len(outcomes)} tests that you can see, but not every hidden test: "
            "think of cases that they do not cover."
        )
    shown = "\n\n".join(_failure(problem, outcome) for outcome in failed[:MAX_SHOWN_FAILURES])
    return f"It failed {len(failed)} of {len(outcomes)} tests:\n{shown}"


def _failure(problem: Problem, outcome: Outcome) -> str:
    if problem.kind == "stdin":
        test, right = quoting.fenced(cut(outcome.input)), quoting.fenced(cut(outcome.expected))
        did = quoting.fenced(outcome.shown)
        return f"Input:\n{test}\nExpected output:\n{right}\nIt did:\n{did}"
    call = _call(problem, outcome.input)
    did = f"{call} should be {cut(outcome.expected)}; it did: {outcome.shown}"
    return quoting.in_one_line(did)


def _proposal(problem: Problem, proposal: Proposal) -> str:
    note = " (not verified)" if proposal.verdict == "unknown" else ""
    if problem.kind == "stdin":
        given, right = quoting.fenced(cut(proposal.input)), quoting.fenced(cut(proposal.output))
        return f"Test Input:\n{given}\nTest Output:\n{right}{note}"
    return quoting.in_one_line(_assert_line(problem, proposal.input, proposal.output)) + note


def _stdin_test(test_input: str, expected: str) -> str:
    return f"Test Input:\n{fenced(test_input)}\nTest Output:\n{fenced(expected)}"


def _assert_line(problem: Problem, test_input: str, expected: str) -> str:
    return f"assert {_call(problem, test_input)} == {expected}"


def _call(problem: Problem, arguments: str) -> str:
    inside = arguments.strip().removeprefix("(").removesuffix(")").rstrip().removesuffix(",")
    return f"{function_name(problem)}({inside})"


def _coder_rules(problem: Problem, max_tests: int) -> str:
    if problem.asked:
        task = f"Write in Python 3: {problem.asked}."
    elif problem.kind == "stdin":
        task = "Write a Python 3 program that reads standard input and writes standard output."
    else:
        owner, _, name = problem.entry_point.rpartition(".")
        inside = f" as a method of a class {owner}" if owner else ""
        task = f"Write the Python 3 function {name}{inside}, complete, with its imports."
    return (
        f"You are the coder. {task} It is judged on hidden tests. A tester gives you tests; "
        "what your last program did on them is shown. Think briefly, then give the whole "
        "program in one fenced block:\n```python\n# your program\n```"
    )


def _tester_rules(problem: Problem, max_tests: int) -> str:
    form = (
        "Test Input:\n```\n<the whole standard input>\n```\nTest Output:\n```\n"
        "<the exact standard output>\n```"
        if problem.kind == "stdin"
        else f"```python\nassert {function_name(problem)}(<literals>) == <literal>\n```\n"
        "with one assert a line"
    )
    return (
        "You are the tester. Find inputs that wrong programs get wrong: edge cases, extremes, "
        "ties, empty and repeated values. Work out each expected output with care: a test whose "
        "output is wrong is worth nothing, and so is one that repeats an example. Think briefly, "
        f"then give 1 to {max_tests} tests in exactly this form:\n{form}"
    )
