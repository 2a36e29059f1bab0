"""Calls of a repository's functions with drawn arguments, and what own code answers to them."""

import ast
from random import Random
from types import ModuleType
from typing import Any

from troupe_tasks.repair.repository import Files, functions_of

_WORDS = (
    *("Red", "fox,", "over", "the", "lazy", "dog.", "RED", "Fox", "a", "an", "river,"),
    *("Stone", "old.", "to", "of", "Moon", "moon"),
)
_NAMES = ["nut", "bolt", "pipe", "lamp", "ring", "cord"]
_RANGES = {
    "year": (1996, 2012),
    "month": (1, 13),
    "day": (26, 31),
    "minutes": (0, 1600),
    "now": (0, 12),
    "limit": (0, 9),
    "cents": (-400, 900),
    "part": (0, 250),
    "width": (1, 9),
    "height": (1, 9),
    "size": (1, 6),
    "most": (-1, 12),
}
_TEXTS = {"moves": "udlrudlrx", "mark": ",;|"}


def drawn_call(rng: Random, name: str, function: ast.FunctionDef) -> tuple[Any, ...]:
    """Arguments of the function's annotated types, with small numbers and few words."""
    return tuple(
        _value(rng, argument.arg, ast.unparse(argument.annotation or ast.Name("int")))
        for argument in function.args.args
    )


def _value(rng: Random, name: str, kind: str) -> Any:
    if kind == "int":
        low, high = _RANGES.get(name, (-2, 9))
        return rng.randint(low, high)
    if kind == "str":
        return _text(rng, name)
    if kind == "tuple[int, int]":
        return rng.randint(-2, 8), rng.randint(-2, 8)
    if kind == "list[int]":
        return [rng.randint(-9, 12) for _ in range(rng.randint(0, 6))]
    if kind == "list[str]":
        return [rng.choice(_NAMES) for _ in range(rng.randint(0, 6))]
    if kind == "list[tuple[int, int]]":
        return [(rng.randint(-2, 12), rng.randint(-2, 12)) for _ in range(rng.randint(0, 4))]
    if kind == "dict[str, int]":
        return {key: rng.randint(0, 5) for key in rng.sample(_NAMES, rng.randint(0, 5))}
    raise ValueError(f"no values are drawn for {kind}")


def _text(rng: Random, name: str) -> str:
    if name == "moves":
        return "".join(rng.choices(_TEXTS["moves"], k=rng.randint(0, 9)))
    if name == "mark":
        return rng.choice(_TEXTS["mark"])
    if name == "name":
        return rng.choice(_NAMES)
    words = [rng.choice([*_WORDS, *(str(rng.randint(-9, 40)) for _ in range(8))]) for _ in range(7)]
    separator = rng.choice((" ", " ", "  ", ", "))
    return separator.join(words[: rng.randint(0, 7)])


def answer(modules: dict[str, ModuleType], name: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
    """Whether the function of an own repository returned, and what."""
    module, _, function = name.rpartition(".")
    try:
        return True, getattr(modules[module], function)(*args)
    except Exception:
        return False, None


def call_text(name: str, args: tuple[Any, ...]) -> str:
    """The call as it is written in Python."""
    return f"{name}({', '.join(map(repr, args))})"


def drawn_calls(rng: Random, files: Files, each: int) -> list[tuple[str, tuple[Any, ...]]]:
    """``each`` different calls of every function, fewer where there are not so many."""
    calls: list[tuple[str, tuple[Any, ...]]] = []
    for name, function in functions_of(files).items():
        args = (drawn_call(rng, name, function) for _ in range(each))
        calls += {repr(values): (name, values) for values in args}.values()
    return calls
