"""Programs that are wrong in one place: seeded changes of a right one.

Owns the changes only. Whether a change matters is found out by running it; see ``build.py``.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from random import Random

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Div: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.RShift: ast.LShift,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "lower": "upper"}
_Change = Callable[[ast.AST], None]


def mutants(source: str, rng: Random) -> Iterator[str]:
    """Every single change of ``source``, each once, in an order drawn from ``rng``.

    Raises SyntaxError when ``source`` is not Python.
    """
    tree = ast.parse(source)
    sites = [(n, c) for n, node in enumerate(ast.walk(tree)) for c in _changes(node)]
    rng.shuffle(sites)
    seen = {ast.unparse(tree)}
    for number, change in sites:
        changed = copy.deepcopy(tree)
        change(next(node for n, node in enumerate(ast.walk(changed)) if n == number))
        text = ast.unparse(ast.fix_missing_locations(changed))
        if text not in seen:
            seen.add(text)
            yield text + "\n"


def _changes(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        yield _swap_comparison
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _COMPUTED:
        yield _swap_operator
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield _add_one
        yield _take_one
    if isinstance(node, ast.BoolOp):
        yield _swap_bool
        yield _drop_operand
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _negate
    if isinstance(node, ast.Call) and _name(node) in _CALLED:
        yield _swap_call
    if isinstance(node, ast.Call) and _name(node) in ("sorted", "set", "abs") and node.args:
        yield _drop_call
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield _drop_sign
    if isinstance(node, ast.comprehension) and node.ifs:
        yield _drop_filter


def _swap_comparison(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[0] = _COMPARED[type(node.ops[0])]()


def _swap_operator(node: ast.AST) -> None:
    assert isinstance(node, ast.BinOp | ast.AugAssign)
    node.op = _COMPUTED[type(node.op)]()


def _add_one(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    node.value += 1


def _take_one(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    node.value -= 1


def _swap_bool(node: ast.AST) -> None:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()


def _drop_operand(node: ast.AST) -> None:
    assert isinstance(node, ast.BoolOp)
    node.values.pop()
    node.values.append(node.values[0])


def _negate(node: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.IfExp | ast.While)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _swap_call(node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Name):
        node.func.id = _CALLED[node.func.id]
    elif isinstance(node.func, ast.Attribute):
        node.func.attr = _CALLED[node.func.attr]


def _drop_call(node: ast.AST) -> None:
    """``sorted(x)`` and the like become ``list(x)``; ``abs(x)`` becomes ``+x``."""
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    if node.func.id == "abs":
        node.func.id = "int"
    else:
        node.func.id, node.keywords = "list", []


def _drop_sign(node: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp)
    node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
    if isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _drop_filter(node: ast.AST) -> None:
    assert isinstance(node, ast.comprehension)
    node.ifs.pop()


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
