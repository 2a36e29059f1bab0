"""Shared by the readers of published code data sets: finishing a problem, and reading heads."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from troupe.data.dataset import RefusedRowError
from troupe_tasks.code.asserts import cases_of_check
from troupe_tasks.code.problem import TestCase

MAX_REFERENCES = 3
MAX_WRONG = 6
MAX_CASE_CHARS = 1_000_000
"""A longer test is left out: it would not fit through a sandbox run."""

_STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools "
    "operator io sys json builtins typing"
)
IMPORTS = "; ".join(
    [
        *(f"from {module} import *" for module in _STARRED.split()),
        *(f"import {module}" for module in (*_STARRED.split(), "fractions", "time")),
        "sys.setrecursionlimit(50000)",
    ]
)
"""What LiveCodeBench's published harness runs before a solution, with two modules of APPS's: the
starter code of both names ``List`` and the like. ``builtins`` comes behind ``math``, whose ``pow``
is another. In one line, so that the lines of errors stay near the program's."""


def finished(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``fields`` with tests that can be judged: hidden ones that are neither public nor repeated.

    Raises RefusedRowError when no hidden test is left.
    """
    public = _usable(fields.get("public_tests", ()), set())
    shown = {_key(test) for test in public}
    hidden = _usable(fields["hidden_tests"], shown)
    if not hidden:
        raise RefusedRowError("no_hidden_test")
    return {
        **fields,
        "public_tests": [test.model_dump() for test in public],
        "hidden_tests": [test.model_dump() for test in hidden],
    }


def check_cases(source: str, entry: str) -> list[TestCase]:
    """The cases of a ``check(candidate)``; raises RefusedRowError when there are none."""
    try:
        cases = cases_of_check(source, [entry])
    except SyntaxError as error:
        raise RefusedRowError("test_is_no_python") from error
    except LookupError as error:
        raise RefusedRowError("no_check_function") from error
    if not cases:
        raise RefusedRowError("no_tests")
    return cases


def head_and_imports(prompt: str, entry: str) -> str:
    """What a prompt gives besides the function to write: imports and helper functions.

    Raises RefusedRowError when the prompt is not a function head.
    """
    try:
        body = ast.parse(prompt + "\n    pass\n").body
        rest = [n for n in body if not (isinstance(n, ast.FunctionDef) and n.name == entry)]
        return "\n".join(ast.unparse(node) for node in rest)
    # Python's parser raises the others for NUL characters and for deep nesting.
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise RefusedRowError("prompt_is_no_function_head") from error


def _usable(tests: Sequence[TestCase], taken: set[tuple[str, str | None]]) -> list[TestCase]:
    usable: dict[tuple[str, str | None], TestCase] = {}
    for test in tests:
        if len(test.input) + len(test.output) <= MAX_CASE_CHARS and _key(test) not in taken:
            usable.setdefault(_key(test), test)
    return list(usable.values())


def _key(test: TestCase) -> tuple[str, str | None]:
    return test.input, test.script
