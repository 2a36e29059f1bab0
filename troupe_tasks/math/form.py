r"""What an answer may look like, given the reference: one answer, worked out.

A computer algebra system calls ``17 \cdot 23`` and ``391`` equal, and some sets equal to one of
their members. So an agent could box the question itself, or several candidates at once. These
rules stop that before anything is computed. Owns syntax only; never decides equality.
"""

import re

from troupe_tasks.math.units import TEXT

MAX_DEPTH = 12
MAX_EXPONENT_DIGITS = 3

_SEPARATOR = re.compile(r"(?<!\d),|,(?!\d{3}(?!\d))|;|\\lor|\\vee|\\cup|\bor\b|\band\b")
"""What stands between several answers; a comma before three digits belongs to a number."""

_EITHER = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])|±")
"""A sign that makes two answers of one."""

_WORDS = re.compile(rf"{TEXT}\s*\{{([^{{}}]*)\}}")
_PRESENTATION = {
    "left", "right", "text", "textrm", "textbf", "textit", "textnormal", "mathrm", "mathbf",
    "mbox", "displaystyle", "quad", "qquad",
    "pi", "infty", "circ", "degree", "cup", "cap", "emptyset", "varnothing", "in", "mathbb",
    "le", "leq", "ge", "geq", "lt", "gt", "ne", "neq", "begin", "end", "alpha", "beta", "gamma",
    "theta", "lambda", "mu", "omega", "phi", "angle", "triangle", "operatorname", "mathcal",
}  # fmt: skip
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_SYMBOL = re.compile(r"[*/^!]|(?<=[\w)}\]])\s*[+-]|(?<=[\d)\]])\s*(?=\()|(?<=\d)\s+(?=\d)")
_ASSIGNED = re.compile(r"^\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([a-z]\))?\s*(?:=(?!=)|\\in(?![a-z]))")
_BRACKET = re.compile(r"\\?[{}]|[()\[\]]")
_OUTER = re.compile(r"^\s*(\\left\s*)?(\\\{|[(\[])(.*?)(\\right\s*)?(\\\}|[)\]])\s*$", re.DOTALL)


def without_assignment(text: str) -> str:
    r"""``text`` without a leading ``x =`` or ``x \in``, when it has no other equals sign."""
    assignment = _ASSIGNED.match(text)
    if assignment and "=" not in text[assignment.end() :]:
        return text[assignment.end() :].strip()
    return text.strip()


def is_one_answer(gold: str, candidate: str) -> bool:
    """Whether ``candidate`` has the shape of ``gold`` and is no more left to work out.

    As many parts and the same brackets, no more equals signs, no more operations, and nothing
    that would blow a computer algebra system up.
    """
    return (
        _is_harmless(candidate)
        and _shape(gold) == _shape(candidate)
        and candidate.count("=") <= gold.count("=")
        and _num_written_out(candidate) <= _num_written_out(gold)
    )


def num_operations(text: str) -> int:
    r"""Operations that are left to do in ``text``: signs between terms, ``\frac``, ``\sqrt``."""
    commands = _COMMAND.findall(text)
    plain = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\!", "", text)
    plain = re.sub(rf"(?:{TEXT}|\\operatorname)\s*\{{[^{{}}]*\}}", "", plain)
    symbols = _SYMBOL.findall(_COMMAND.sub("#", plain))
    return sum(command not in _PRESENTATION for command in commands) + len(symbols)


def _num_written_out(text: str) -> int:
    r"""``num_operations`` with ``3 \pm \sqrt 2`` written out as two answers."""
    if not _EITHER.search(text):
        return num_operations(text)
    parts = [_EITHER.subn("+", part) for part in _SEPARATOR.split(text)]
    return sum(num_operations(part) * (2 if signs else 1) for part, signs in parts)


def _shape(text: str) -> tuple[str, int]:
    """The kind of outer brackets and the number of parts; a bare list counts as a set.

    Of several pairs in a row, as in a union of intervals, all brackets in any order.
    """
    brackets, inside = "", text.strip().strip("$")
    outer, ends = _OUTER.match(inside), _outermost(inside)
    if outer and len(ends) > 2:
        num_parts = _num_parts(inside)
        return "".join(sorted(ends)) if num_parts > 1 else "", num_parts
    if outer:
        opened, closed = outer.group(2).strip("\\"), outer.group(5).strip("\\")
        num_parts = _num_parts(outer.group(3))
        if num_parts > 1 or opened == "{":
            brackets = "" if (opened, closed) == ("{", "}") else opened + closed
            inside = outer.group(3)
    return brackets, _num_parts(inside)


def _outermost(text: str) -> str:
    """The brackets of ``text`` that stand in no others; braces that only group are none."""
    depth, ends = 0, ""
    for bracket in _BRACKET.findall(text):
        depth -= bracket[-1] in ")]}"
        if depth == 0 and bracket not in "{}":
            ends += bracket[-1]
        depth += bracket[-1] in "([{"
    return ends


def _num_parts(text: str) -> int:
    """Parts between separators that stand outside all brackets."""
    depth, flat = 0, ""
    for character in _WORDS.sub(r" \1 ", text):
        depth += character in "([{"
        depth -= character in ")]}"
        if depth == 0:
            flat += character
    return 1 + len(_SEPARATOR.findall(flat)) + len(_EITHER.findall(flat))


def _is_harmless(text: str) -> bool:
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    towers = re.search(r"\^[^+\-*/=,]*\^|\*\*|!\s*!", text)
    exponents = re.findall(r"\^\s*\{?\s*-?(\d+)", text)
    factorials = re.findall(r"(\d+)\s*!", text)
    is_small = all(len(digits) <= MAX_EXPONENT_DIGITS for digits in exponents + factorials)
    return deepest <= MAX_DEPTH and not towers and is_small
