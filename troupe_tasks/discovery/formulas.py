"""Formulas: a small language read by Python's parser and evaluated here, never by ``eval``.

Numbers, the names of the quantities, ``+ - * / **`` (or ``^``) and six functions. A formula is cut
in length, nodes and depth before it is read, and every error of arithmetic is "no value".
"""

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

MAX_CHARS = 400
MAX_NODES = 60
MAX_BRACKETS = 40
MAX_NUMBER = 1e9

Operator = Literal["+", "-", "*", "/", "**"]
Point = Mapping[str, float]

_OPERATORS: Mapping[type[ast.operator], Operator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}
_APPLY: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": math.pow,
}
FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "abs": abs,
}


@dataclass(frozen=True, slots=True)
class Node:
    """One part of a formula: a number, a quantity, or an operator or function of parts.

    Example: ``Node("+", parts=(Node("x"), Node("number", 1.0)))``.
    """

    kind: str
    number: float = 0.0
    parts: "tuple[Node, ...]" = ()

    @property
    def size(self) -> int:
        """Number of nodes."""
        return 1 + sum(part.size for part in self.parts)


def parse(text: str, names: Collection[str]) -> Node | None:
    """The formula in ``text``, or None when it is none.

    Example: ``parse("2*x**1.5", {"x"}).size == 5``.
    """
    source = text.strip().replace("^", "**")
    if not source or len(source) > MAX_CHARS or not source.isascii():
        return None
    if source.count("(") > MAX_BRACKETS or source.count("-") > MAX_NODES:
        return None
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if sum(1 for n in ast.walk(tree) if isinstance(n, ast.expr)) > MAX_NODES:
        return None
    return _node(tree, names)


def value(node: Node, point: Point) -> float | None:
    """The formula's value, or None where it has none or is not finite."""
    try:
        found = _value(node, point)
    except (ArithmeticError, ValueError):
        return None
    return found if math.isfinite(found) else None


def written(node: Node) -> str:
    """The formula as text that ``parse`` reads back."""
    if node.kind == "number":
        text = f"{node.number:.6g}"
        return f"({text})" if node.number < 0 else text
    if not node.parts:
        return node.kind
    if node.kind in FUNCTIONS:
        return f"{node.kind}({written(node.parts[0])})"
    left, right = (written(part) for part in node.parts)
    return f"({left} {node.kind} {right})"


def coefficients(node: Node) -> list[float]:
    """The numbers that are no exponents, in the order of the text."""
    if node.kind == "number":
        return [node.number]
    parts = node.parts[:1] if node.kind == "**" else node.parts
    return [number for part in parts for number in coefficients(part)]


def with_coefficients(node: Node, numbers: Sequence[float]) -> Node:
    """The formula with other coefficients; exponents go to the nearest quarter."""
    left = list(numbers)
    return _refilled(node, left)


def _refilled(node: Node, left: list[float]) -> Node:
    if node.kind == "number":
        return replace(node, number=left.pop(0))
    if node.kind == "**":
        base, exponent = node.parts
        return replace(node, parts=(_refilled(base, left), _snapped(exponent)))
    return replace(node, parts=tuple(_refilled(part, left) for part in node.parts))


def _snapped(node: Node) -> Node:
    if node.kind == "number":
        return replace(node, number=round(4 * node.number) / 4)
    return replace(node, parts=tuple(_snapped(part) for part in node.parts))


def _value(node: Node, point: Point) -> float:
    if node.kind == "number":
        return node.number
    if not node.parts:
        return point[node.kind]
    if node.kind in FUNCTIONS:
        return FUNCTIONS[node.kind](_value(node.parts[0], point))
    left, right = node.parts
    return _APPLY[node.kind](_value(left, point), _value(right, point))


def _node(tree: ast.expr, names: Collection[str]) -> Node | None:
    if isinstance(tree, ast.Constant):
        return _number(tree.value)
    if isinstance(tree, ast.Name):
        return Node(tree.id) if tree.id in names else None
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
        return _signed(_node(tree.operand, names), isinstance(tree.op, ast.USub))
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        left, right = _node(tree.left, names), _node(tree.right, names)
        if left is None or right is None:
            return None
        return Node(_OPERATORS[type(tree.op)], parts=(left, right))
    return _call(tree, names) if isinstance(tree, ast.Call) else None


def _call(tree: ast.Call, names: Collection[str]) -> Node | None:
    """A function of one part."""
    if not isinstance(tree.func, ast.Name) or tree.func.id not in FUNCTIONS:
        return None
    if len(tree.args) != 1 or tree.keywords:
        return None
    part = _node(tree.args[0], names)
    return None if part is None else Node(tree.func.id, parts=(part,))


def _number(constant: object) -> Node | None:
    if type(constant) not in (int, float):
        return None
    try:
        number = float(str(constant))
    except ValueError:  # more digits than Python converts
        return None
    return Node("number", number) if abs(number) <= MAX_NUMBER else None


def _signed(part: Node | None, is_negative: bool) -> Node | None:
    if part is None or not is_negative:
        return part
    if part.kind == "number":
        return replace(part, number=-part.number)
    return Node("-", parts=(Node("number", 0.0), part))
