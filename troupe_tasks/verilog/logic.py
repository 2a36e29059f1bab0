"""Circuits without registers: expressions, truth tables and small arithmetic units."""

from random import Random
from typing import Any

from troupe_tasks.verilog.circuit import Circuit, Port, Values

_BINARY = ("&", "|", "^", "+", "-", "~^")
_ALU = {
    "add": ("a + b", "the sum of a and b"),
    "sub": ("a - b", "a minus b"),
    "back": ("b - a", "b minus a"),
    "and": ("a & b", "a and b, bit by bit"),
    "or": ("a | b", "a or b, bit by bit"),
    "xor": ("a ^ b", "a xor b, bit by bit"),
    "nor": ("~(a | b)", "nor of a and b, bit by bit"),
    "nand": ("~(a & b)", "nand of a and b, bit by bit"),
    "max": ("(a > b) ? a : b", "the larger of a and b, unsigned"),
    "min": ("(a < b) ? a : b", "the smaller of a and b, unsigned"),
    "left": ("a << 1", "a shifted left by one"),
    "right": ("a >> 1", "a shifted right by one, unsigned"),
}

Tree = Any
"""``"a"``, ``["~", tree]`` or ``[operator, tree, tree]``."""


def expression(params: dict[str, Any]) -> Circuit:
    """``y`` is an expression over a, b and c."""
    width, tree = params["width"], params["tree"]
    mask = (1 << width) - 1
    text = _text(tree)
    return Circuit(
        "expression",
        f"y is {text}. All operands have {width} bits; keep the lowest {width} bits. There are no "
        "registers.",
        tuple(Port("input", name, width) for name in "abc"),
        Port("output", "y", width),
        f"  assign y = {text};\n",
        None,
        lambda _, values: _value(tree, values) & mask,
        lambda _, __: None,
    )


def draw_expression(rng: Random) -> dict[str, Any]:
    """Parameters of ``expression``."""
    width, tree = rng.randint(2, 4), _tree(rng, 3)
    while not all(name in _text(tree) for name in "abc"):
        tree = _tree(rng, 3)
    return {"width": width, "tree": tree}


def change_expression(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    return params | {"tree": _changed(params["tree"], rng)}


def _tree(rng: Random, depth: int) -> Tree:
    if depth == 0 or (depth < 3 and rng.random() < 0.15):
        return rng.choice("abc")
    tree = [rng.choice(_BINARY), _tree(rng, depth - 1), _tree(rng, depth - 1)]
    return ["~", tree] if rng.random() < 0.2 else tree


def _changed(tree: Tree, rng: Random) -> Tree:
    if isinstance(tree, str):
        return rng.choice([name for name in "abc" if name != tree])
    if len(tree) == 2:
        return ["~", _changed(tree[1], rng)] if rng.random() < 0.7 else tree[1]
    if rng.random() < 0.3:
        return [rng.choice([op for op in _BINARY if op != tree[0]]), *tree[1:]]
    side = rng.choice((1, 2))
    return [*tree[:side], _changed(tree[side], rng), *tree[side + 1 :]]


def _text(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    if len(tree) == 2:
        return f"(~{_text(tree[1])})"
    return f"({_text(tree[1])} {tree[0]} {_text(tree[2])})"


def _value(tree: Tree, values: Values) -> int:
    if isinstance(tree, str):
        return values[tree]
    left = _value(tree[1], values)
    if len(tree) == 2:
        return ~left
    right = _value(tree[2], values)
    match tree[0]:
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "+":
            return left + right
        case "-":
            return left - right
        case _:
            return ~(left ^ right)


def table(params: dict[str, Any]) -> Circuit:
    """``y`` is 1 for some numbers ``x``."""
    width, ones = params["width"], set(params["ones"])
    listed = ", ".join(map(str, sorted(ones)))
    cases = ", ".join(f"{width}'d{number}" for number in sorted(ones))
    return Circuit(
        "table",
        f"x is an unsigned number of {width} bits. y is 1 when x is one of {listed}; else y is 0. "
        "There are no registers.",
        (Port("input", "x", width),),
        Port("output", "y", 1),
        f"  reg r;\n  assign y = r;\n  always @(*) begin\n    case (x)\n      {cases}: r = 1'b1;\n"
        "      default: r = 1'b0;\n    endcase\n  end\n",
        None,
        lambda _, values: int(values["x"] in ones),
        lambda _, __: None,
    )


def draw_table(rng: Random) -> dict[str, Any]:
    """Parameters of ``table``."""
    width = rng.randint(3, 5)
    size = 1 << width
    return {"width": width, "ones": sorted(rng.sample(range(size), rng.randint(2, size // 2)))}


def change_table(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    flipped = set(params["ones"]) ^ {rng.randrange(1 << params["width"])}
    return params | {"ones": sorted(flipped)}


def unit(params: dict[str, Any]) -> Circuit:
    """An arithmetic unit: ``op`` picks one of four functions of a and b."""
    width, ops = params["width"], params["ops"]
    mask = (1 << width) - 1
    words = "; ".join(f"op={n}: {_ALU[name][1]}" for n, name in enumerate(ops))
    lines = "".join(f"      2'd{n}: r = {_ALU[name][0]};\n" for n, name in enumerate(ops))
    return Circuit(
        "unit",
        f"op picks what y is. {words}. a, b and y have {width} bits; keep the lowest {width} bits. "
        "There are no registers.",
        (Port("input", "op", 2), Port("input", "a", width), Port("input", "b", width)),
        Port("output", "y", width),
        f"  reg [{width - 1}:0] r;\n  assign y = r;\n  always @(*) begin\n    case (op)\n{lines}"
        "    endcase\n  end\n",
        None,
        lambda _, values: _operated(ops[values["op"]], values["a"], values["b"]) & mask,
        lambda _, __: None,
    )


def draw_unit(rng: Random) -> dict[str, Any]:
    """Parameters of ``unit``."""
    return {"width": rng.randint(2, 4), "ops": rng.sample(list(_ALU), 4)}


def change_unit(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    ops, at = list(params["ops"]), rng.randrange(4)
    ops[at] = rng.choice([name for name in _ALU if name != ops[at]])
    return params | {"ops": ops}


def _operated(name: str, a: int, b: int) -> int:
    results = {
        "add": a + b,
        "sub": a - b,
        "back": b - a,
        "and": a & b,
        "or": a | b,
        "xor": a ^ b,
        "nor": ~(a | b),
        "nand": ~(a & b),
        "max": max(a, b),
        "min": min(a, b),
        "left": a << 1,
        "right": a >> 1,
    }
    return results[name]
