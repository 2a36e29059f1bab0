"""The language of plans: lines ``name = operator(inputs, "instruction")``, read and never run.

A name stands in inputs only below its own line, so a plan has no cycle and no loop. What a text
costs to read is bounded by ``MAX_CHARS``.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_CHARS = 4_000
MAX_LINES = 12
MAX_INSTRUCTION_CHARS = 160


@dataclass(frozen=True, slots=True)
class Operator:
    """What a line does.

    ``fewest`` and ``most`` bound its inputs. ``asks`` says whether it costs a call of the executor,
    ``answers`` whether its output is an answer: only such outputs are voted on, picked, reviewed
    or given as the team's. The first ``checked`` inputs must be answers.
    """

    fewest: int
    most: int
    asks: bool
    answers: bool
    checked: int
    meaning: str


OPERATORS = {
    "answer": Operator(0, 3, True, True, 0, "solve the problem, with the inputs in view"),
    "review": Operator(1, 1, True, False, 1, "say what is wrong with x"),
    "revise": Operator(2, 2, True, True, 1, "a better x, in the light of y"),
    "pick": Operator(2, 5, True, True, 5, "the best of the inputs"),
    "program": Operator(0, 2, True, True, 0, "write a Python program that prints the answer"),
    "vote": Operator(2, 5, False, True, 5, "the most frequent answer; asks nobody"),
}


@dataclass(frozen=True, slots=True)
class Node:
    """One line of a plan.

    Example: ``Node("c", "revise", ("a", "b"), "be brief")``.
    """

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    say: str = ""

    @property
    def asks(self) -> bool:
        """Whether the executor is asked."""
        return OPERATORS[self.operator].asks


@dataclass(frozen=True, slots=True)
class Reading:
    """A plan, or why the text is none: ``nodes`` is empty exactly when ``why`` is not."""

    nodes: tuple[Node, ...] = ()
    why: str = ""

    @property
    def num_calls(self) -> int:
        """Calls of the executor."""
        return sum(node.asks for node in self.nodes)


_FENCE = re.compile(r"```[a-z]{0,10}[ \t]*\n(.*?)```", re.DOTALL)
_LINE = re.compile(r"([a-z][a-z0-9_]{0,11}) ?= ?([a-z]{1,12})\((.{0,400})\)")
_INSTRUCTION = re.compile(rf'"([^"\\]{{0,{MAX_INSTRUCTION_CHARS}}})"')


def read_plan(text: str, *, operators: Collection[str], max_lines: int) -> Reading:
    """Read the plan in the last fence of ``text``, or in all of it when it has no fence.

    Example: ``read_plan('a = answer()', operators=OPERATORS, max_lines=6).num_calls == 1``.
    """
    if len(text) > MAX_CHARS:
        return Reading(why=f"longer than {MAX_CHARS} characters")
    fences = _FENCE.findall(text)
    lines = [line.strip() for line in (fences[-1] if fences else text).split("\n") if line.strip()]
    if not 1 <= len(lines) <= max_lines:
        return Reading(why=f"{len(lines)} lines; 1 to {max_lines} are a plan")
    nodes: dict[str, Node] = {}
    for line in lines:
        node = _read_line(line)
        why = _fault(node, nodes, operators) if node else f"cannot read the line {line[:60]!r}"
        if node is None or why:
            return Reading(why=why)
        nodes[node.name] = node
    last = next(reversed(nodes.values()))
    if not OPERATORS[last.operator].answers:
        return Reading(why=f"the last line is a {last.operator}, which is no answer")
    return Reading(tuple(nodes.values()))


def _read_line(line: str) -> Node | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    name, operator, inside = match.groups()
    said = _INSTRUCTION.findall(inside)
    rest = _INSTRUCTION.sub("", inside).strip()
    if len(said) > 1 or (said and not inside.rstrip().endswith('"')):
        return None
    if said:
        if rest and not rest.endswith(","):
            return None
        rest = rest.removesuffix(",")
    inputs = tuple(part.strip() for part in rest.split(",")) if rest.strip() else ()
    return Node(name, operator, inputs, said[0] if said else "")


def _fault(node: Node, known: dict[str, Node], operators: Collection[str]) -> str:
    """Why ``node`` can't stand below the ``known`` lines; "" when it can."""
    operator = OPERATORS.get(node.operator)
    if operator is None or node.operator not in operators:
        return f"there is no operator {node.operator!r}"
    if node.name in known:
        return f"the name {node.name!r} stands twice"
    if not operator.fewest <= len(node.inputs) <= operator.most:
        return f"{node.operator} takes {operator.fewest} to {operator.most} inputs"
    if len(set(node.inputs)) != len(node.inputs):
        return f"{node.operator} has one input twice"
    for place, name in enumerate(node.inputs):
        if name not in known:
            return f"{name[:12]!r} is no name of a line above"
        if place < operator.checked and not OPERATORS[known[name].operator].answers:
            return f"{node.operator} needs an answer, and {name!r} is none"
    return ""
