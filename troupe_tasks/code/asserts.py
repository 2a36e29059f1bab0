"""Turns published Python tests into test cases of our own: plain calls where that is exact.

``assert f(1, [2]) == 3`` becomes a call with its arguments and its result. Everything else stays
a script, which is judged by replay. Reads source text only, and never runs it.
"""

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import Any, cast

from troupe_tasks.code.problem import TestCase

_UNREADABLE = (ValueError, MemoryError, RecursionError)
"""What Python's parser raises besides SyntaxError: for NUL characters and for deep nesting."""
_BLOCKS = (ast.For, ast.While, ast.With, ast.Try, ast.If)


def cases_of_asserts(statements: Sequence[str], names: Sequence[str], setup: str) -> list[TestCase]:
    """One case a statement list such as MBPP's ``test_list``; ``setup`` goes before each script.

    ``names`` are what the tested function is called there; scripts call it ``candidate``. Raises
    SyntaxError when a statement or ``setup`` is no Python.
    """
    try:
        return [
            _plain(test, names) or TestCase(script=_script(setup, text, names))
            for text in statements
            if (test := _only_statement(text)) is not None
        ]
    except _UNREADABLE as error:
        raise SyntaxError(f"the tests can't be read: {error!r}") from error


def cases_of_check(source: str, names: Sequence[str]) -> list[TestCase]:
    """The cases of a ``check(candidate)`` function, as in HumanEval: one for each assert.

    A script holds what stands before its assert in ``check``, without the other asserts, so a
    test that fails does not hide the next one. Raises SyntaxError when ``source`` is no Python,
    LookupError when it defines no ``check``.
    """
    try:
        return _cases_of_check(source, names)
    except _UNREADABLE as error:
        raise SyntaxError(f"the test can't be read: {error!r}") from error


def _cases_of_check(source: str, names: Sequence[str]) -> list[TestCase]:
    tree = ast.parse(source)
    checks = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"]
    if not checks:
        raise LookupError("the test defines no function check")
    parameter = checks[-1].args.args[0].arg if checks[-1].args.args else "candidate"
    called = (parameter, "candidate", *names)
    outside = [node for node in tree.body if node not in checks and not _is_metadata(node)]
    before: list[ast.stmt] = list(outside)
    cases: list[TestCase] = []
    for node in checks[-1].body:
        if _holds_assert(node):
            script = "\n".join(ast.unparse(part) for part in _calling_first(before, node))
            cases.append(_plain(node, called) or TestCase(script=_renamed(script, called)))
        elif not _is_text(node):
            before.append(node)
    return cases


def _calling_first(before: Sequence[ast.stmt], node: ast.stmt) -> list[ast.stmt]:
    """A script that makes the calls of a loop first, without its asserts, and then runs all of it.

    A script that lacks an answer goes on only as far as comparisons and arithmetic carry it, so a
    loop such as ``x = candidate(xs); assert math.fabs(poly(xs, x)) < 1e-4`` would tell one call a
    round of the few that there are. The loop's second run meets the calls of the first: ``before``
    is run again, and tests are deterministic.
    """
    if not (isinstance(node, ast.For | ast.While) and _is_call_kept(node)):
        return [*before, node]
    calls = cast(ast.stmt, _WithoutAsserts().visit(copy.deepcopy(node)))
    return [*before, calls, *before, node]


def _is_call_kept(node: ast.stmt) -> bool:
    """Some call stands outside of the asserts, so that what it returns has a name in them."""
    return any(
        isinstance(part, ast.Assign) and any(isinstance(n, ast.Call) for n in ast.walk(part.value))
        for part in ast.walk(node)
    )


class _WithoutAsserts(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)


def _plain(node: ast.stmt, names: Sequence[str]) -> TestCase | None:
    """``assert f(literals) == literal``, either way round, ``assert f(..)``, ``assert not f(..)``.

    The last two become ``True`` and ``False`` only when written with ``is`` or ``==``: truth is
    not equality.
    """
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        return None
    test = node.test
    if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    for call, right in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        if not isinstance(call, ast.Call) or call.keywords:
            continue
        if isinstance(call.func, ast.Name) and call.func.id in names:
            return _literal_case(call.args, right)
    return None


def _literal_case(args: Sequence[ast.expr], right: ast.expr) -> TestCase | None:
    try:
        arguments = tuple(ast.literal_eval(arg) for arg in args)
        pair = repr(arguments), repr(ast.literal_eval(right))
        if any(
            ast.literal_eval(text) != value for text, value in zip(pair, _values(pair), strict=True)
        ):
            return None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return TestCase(input=pair[0], output=pair[1])


def _values(pair: tuple[str, str]) -> list[Any]:
    return [ast.literal_eval(text) for text in pair]


def _script(setup: str, text: str, names: Sequence[str]) -> str:
    return _renamed(f"{setup}\n{text}".strip(), names)


def _renamed(script: str, names: Sequence[str]) -> str:
    """``script`` with the tested function called ``candidate``."""
    tree = ast.parse(script)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = "candidate"
    return ast.unparse(tree)


def _only_statement(text: str) -> ast.stmt | None:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    return body[0] if len(body) == 1 else None


def _holds_assert(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assert):
        return not (isinstance(node.test, ast.Constant) and bool(node.test.value))
    return isinstance(node, _BLOCKS) and any(_asserts(node))


def _asserts(node: ast.stmt) -> Iterator[ast.Assert]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Assert))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr | ast.Assert) and not isinstance(
        getattr(node, "value", None), ast.Call
    )


def _is_metadata(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "METADATA" for target in targets)
