"""Small faults in Python sources: one changed expression or statement each.

Operators follow the usual sets of mutation testing (Jia and Harman 2011, "An Analysis and Survey of
the Development of Mutation Testing", IEEE TSE 37): relational, arithmetic and logical operators,
constants, negated conditions, swapped arguments, replaced and dropped calls, dropped statements.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
}
_CALLED = {"max": "min", "min": "max", "sorted": "list", "sum": "len", "abs": "int"}
_DROPPED = {"strip", "lower", "upper", "capitalize"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """``old`` at ``start`` of a source becomes ``new``. ``kind`` is the operator's name."""

    kind: str
    start: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The source with the fault."""
        return source[: self.start] + self.new + source[self.start + len(self.old) :]


def mutations_of(source: str) -> list[Mutation]:
    """All faults of one module's functions, in the order of the text; each still parses."""
    tree = ast.parse(source)
    starts = _line_starts(source)
    found: list[Mutation] = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in _nodes(function):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            old = source[start:end]
            for kind, changed in _changed(node):
                new = ast.unparse(changed)
                mutation = Mutation(kind, start, old, new)
                if new != old and _parses(mutation.applied(source)):
                    found.append(mutation)
    return found


def _nodes(function: ast.FunctionDef) -> Iterator[ast.expr | ast.stmt]:
    """Nodes of a function's body; none of its docstring and, as Python 3.11 misplaces them, none
    inside f-strings."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    queue: list[ast.AST] = list(body)
    while queue:
        node = queue.pop(0)
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.expr | ast.stmt):
            yield node
        queue.extend(ast.iter_child_nodes(node))


def _changed(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.expr):
        yield from _changed_expression(node)
    elif isinstance(node, ast.AugAssign):
        swapped = _ARITHMETIC.get(type(node.op))
        if swapped:
            yield "arithmetic", _with(node, op=swapped())
        yield "dropped_statement", ast.Pass()
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield "dropped_statement", ast.Pass()
    elif isinstance(node, ast.Continue):
        yield "jump", ast.Break()


def _changed_expression(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare):
        swapped = _COMPARE.get(type(node.ops[0]))
        if swapped:
            yield "comparison", _with(node, ops=[swapped(), *node.ops[1:]])
    elif isinstance(node, ast.BinOp):
        other = _ARITHMETIC.get(type(node.op))
        if other:
            yield "arithmetic", _with(node, op=other())
    elif isinstance(node, ast.BoolOp):
        yield "logic", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.IfExp):
        yield "condition", _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign", node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", ast.Constant(node.value + 1)
        if node.value > 0:
            yield "constant", ast.Constant(node.value - 1)
    elif isinstance(node, ast.Call):
        yield from _changed_call(node)


def _changed_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    if len(node.args) == 2 and not node.keywords:
        yield "arguments", _with(node, args=node.args[::-1])
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        keeps_key = node.func.id != "sorted" or not node.keywords
        if keeps_key:
            yield "called", _with(node, func=ast.Name(_CALLED[node.func.id]))
    if isinstance(node.func, ast.Attribute) and node.func.attr in _DROPPED:
        yield "dropped_call", node.func.value


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _line_starts(source: str) -> list[int]:
    """Where each line begins; sources are ASCII, so columns count characters."""
    starts, at = [], 0
    for line in source.splitlines(keepends=True):
        starts.append(at)
        at += len(line)
    return starts
