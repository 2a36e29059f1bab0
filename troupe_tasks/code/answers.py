"""Reads what agents write: one program, or a few tests in a strict form. Never fails, never runs.

The strict forms are part of the prompts in ``text.py``.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from troupe_tasks.code import fences
from troupe_tasks.code.problem import Problem
from troupe_tasks.code.values import UnreadableError, parse_literal

MAX_TEST_CHARS = 2000
"""A longer test is not read."""


@dataclass(frozen=True, slots=True)
class ProgramAnswer:
    """The program in an answer, or no text at all."""

    code: str
    is_well_formed: bool


@dataclass(frozen=True, slots=True)
class TestsAnswer:
    """Input and expected output of each test in an answer."""

    __test__ = False

    tests: tuple[tuple[str, str], ...]
    is_well_formed: bool


def read_program(text: str, max_chars: int) -> ProgramAnswer:
    """The last fenced block of ``text`` that is marked as Python, or the last without a mark where
    none is; well formed when there is no other of either kind, and it is not empty.

    Example: ``read_program("I add.\\n```python\\nprint(1)\\n```", 100).code`` is ``print(1)\\n``.
    """
    programs = fences.marked(text, fences.PYTHON)
    code = programs[-1] if programs else ""
    if len(code) > max_chars or not code.strip():
        return ProgramAnswer("", is_well_formed=False)
    return ProgramAnswer(code, is_well_formed=len(programs) == 1)


def read_tests(problem: Problem, text: str, max_tests: int) -> TestsAnswer:
    """The first ``max_tests`` tests in ``text``; well formed when there are no more and no less
    than one, and each could be read."""
    pairs = list(_stdin_tests(text) if problem.kind == "stdin" else _call_tests(problem, text))
    readable = [pair for pair in pairs if pair is not None]
    is_well_formed = 0 < len(pairs) <= max_tests and len(readable) == len(pairs)
    return TestsAnswer(tuple(readable[:max_tests]), is_well_formed)


def function_name(problem: Problem) -> str:
    """The name that a call of the problem's function is written with."""
    return problem.entry_point.rpartition(".")[2]


def _stdin_tests(text: str) -> Iterator[tuple[str, str] | None]:
    for test_input, expected in fences.stdin_tests(text):
        yield (test_input, expected) if len(test_input) + len(expected) <= MAX_TEST_CHARS else None


def _call_tests(problem: Problem, text: str) -> Iterator[tuple[str, str] | None]:
    """One test a line: ``assert name(literals) == literal``."""
    name = function_name(problem)
    for _, block in fences.blocks(text):
        for line in block.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield _read_assert(name, line.strip())


def _read_assert(name: str, line: str) -> tuple[str, str] | None:
    """Arguments and result of one assert as literals, or None when it is anything else."""
    if len(line) > MAX_TEST_CHARS:
        return None
    try:
        statements = ast.parse(line).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if len(statements) != 1 or not isinstance(statements[0], ast.Assert):
        return None
    test = statements[0].test
    if not (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
    ):
        return None
    call, right = test.left, test.comparators[0]
    if not (isinstance(call, ast.Call) and _called(call.func) == name and not call.keywords):
        return None
    try:
        arguments = tuple(ast.literal_eval(arg) for arg in call.args)
        pair = (repr(arguments), repr(ast.literal_eval(right)))
        _ = [parse_literal(part) for part in pair]
    except (ValueError, TypeError, MemoryError, RecursionError, UnreadableError):
        return None
    return pair


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
