"""The staged reward of cooperative code: a helper function, a main function, and how they meet.

Source: the reward of CoMLRL's code environments (Liu et al. 2025, arXiv 2508.04652), as published
in its settings: at most 4. Reads source text only, and never runs it.
"""

import ast
from dataclasses import dataclass

HELPER_NAME = "aux"
MAX_SCORE = 4.0
SOLVED_SCORE = 3.8
"""The published threshold for ending an episode early: -0.2 after a shift by -4."""

HELPER_DEFINED, MAIN_DEFINED, PARSES, TESTS, CALLS, NOT_THIN, IGNORES = (
    0.4,
    0.6,
    0.5,
    1.0,
    0.5,
    1.0,
    -0.5,
)


@dataclass(frozen=True, slots=True)
class Structure:
    """What can be seen of a helper and a main function without running them."""

    has_helper: bool
    has_main: bool
    parses: bool
    calls_helper: bool
    is_thin: bool
    ignores_result: bool

    @property
    def is_runnable(self) -> bool:
        """Whether there is a program to test."""
        return self.has_main and self.parses


def structure(helper: str, main: str, entry_point: str) -> Structure:
    """Look at both parts; text that is no Python defines nothing."""
    aux = _function(_parsed(helper), HELPER_NAME)
    function = _function(_parsed(main), entry_point)
    calls = _helper_calls(function) if function else []
    return Structure(
        has_helper=aux is not None and _returns(aux),
        has_main=function is not None and _returns(function),
        parses=_parsed(joined(helper, main)) is not None,
        calls_helper=bool(calls),
        is_thin=function is not None and _is_thin(function),
        ignores_result=function is not None and bool(calls) and _ignores(function, len(calls)),
    )


def score(shape: Structure, pass_rate: float) -> float:
    """The published sum. A missing main function, or parts that do not parse, end it there; the
    last three terms need a helper and at least one passed test."""
    total = HELPER_DEFINED * shape.has_helper
    if not shape.has_main:
        return total
    total += MAIN_DEFINED
    if not shape.parses:
        return total
    total += PARSES + TESTS * pass_rate
    if pass_rate <= 0.0 or not shape.has_helper or not shape.calls_helper:
        return total
    return total + CALLS + NOT_THIN * (not shape.is_thin) + IGNORES * shape.ignores_result


def joined(helper: str, main: str) -> str:
    """The program that is tested."""
    return f"{helper}\n\n{main}\n"


def with_helper(reference: str, entry_point: str) -> str:
    """``reference`` with each result of its function passed through the helper."""
    tree = ast.parse(reference)
    function = _function(tree, entry_point)
    if function is not None:
        for node in _nodes_of(function):
            if isinstance(node, ast.Return) and node.value is not None:
                node.value = ast.Call(ast.Name(HELPER_NAME, ast.Load()), [node.value], [])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _function(tree: ast.Module | None, name: str) -> ast.FunctionDef | None:
    functions = [n for n in (tree.body if tree else []) if isinstance(n, ast.FunctionDef)]
    return next((node for node in reversed(functions) if node.name == name), None)


def _nodes_of(function: ast.FunctionDef) -> list[ast.AST]:
    """Nodes of the function itself, not of functions inside it."""
    nodes: list[ast.AST] = []
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))
    return nodes


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Return) and n.value is not None for n in _nodes_of(function))


def _is_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == HELPER_NAME
    )


def _helper_calls(function: ast.FunctionDef) -> list[ast.AST]:
    return [node for node in ast.walk(function) if _is_call(node)]


def _is_thin(function: ast.FunctionDef) -> bool:
    """``return aux(x)``, or ``y = aux(x)`` and ``return y``, with nothing but names passed on."""
    body = [n for n in function.body if not _is_text(n)]
    last = body[-1] if body else None
    if not isinstance(last, ast.Return) or len(body) > 2:
        return False
    value = last.value
    if len(body) == 2:
        first = body[0]
        if not (isinstance(first, ast.Assign) and isinstance(value, ast.Name)):
            return False
        value = first.value
    return isinstance(value, ast.Call) and _is_call(value) and _passes_names(value)


def _passes_names(call: ast.Call) -> bool:
    passed = [*call.args, *(keyword.value for keyword in call.keywords)]
    return all(isinstance(a, ast.Name | ast.Constant | ast.Starred) for a in passed)


def _ignores(function: ast.FunctionDef, num_calls: int) -> bool:
    """Whether each call of the helper stands alone as a statement."""
    alone = [n for n in ast.walk(function) if isinstance(n, ast.Expr) and _is_call(n.value)]
    return len(alone) == num_calls


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
