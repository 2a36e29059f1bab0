"""How much the judge of modules computes, counted in gates."""

import json
from collections import Counter
from itertools import count

import pytest

from troupe_tasks.verilog import judge
from troupe_tasks.verilog.netlist import GATES, MAX_GATES, MAX_REGISTERS, Gate, Netlist

EDGES = json.dumps({"kind": "edges", "params": {"kinds": ["rise"]}}, separators=(",", ":"))
RST, X = 1, 2


class Drawing:
    """A right module for ``EDGES``, and gates that count how often they are computed."""

    def __init__(self) -> None:
        self.computed = Counter[str]()
        self.gates: list[tuple[int, Gate, tuple[int, ...]]] = []
        self._nets = count(10_000)
        before, rose = 100, 101
        rises = self.gate("$_ANDNOT_", X, before)
        self.registers = [
            (before, self.gate("$_ANDNOT_", X, RST)),
            (rose, self.gate("$_ANDNOT_", rises, RST)),
        ]
        self.output = (rose,)

    def gate(self, kind: str, *pins: int) -> int:
        function, net = GATES[kind][1], next(self._nets)

        def counted(*values: int) -> int:
            self.computed[kind] += 1
            return function(*values)

        self.gates.append((net, counted, pins))
        return net

    def add_counter(self, width: int) -> None:
        """A counter that nothing reads and nothing resets: each step is a new state."""
        carry = 0
        for number, q in enumerate(range(200, 200 + width)):
            flipped = self.gate("$_XOR_", q, carry) if number else self.gate("$_NOT_", q)
            carry = self.gate("$_AND_", q, carry) if number else q
            self.registers.append((q, flipped))

    def netlist(self) -> Netlist:
        inputs = {"rst": (RST,), "x": (X,)}
        return Netlist(inputs, self.output, tuple(self.gates), tuple(self.registers), False)


def test_proof_when_a_module_is_small_then_ends() -> None:
    netlist = Drawing().netlist()
    assert judge.share(EDGES, netlist) == 1.0
    assert judge.prove(EDGES, netlist) == "proved"


def test_proof_when_a_module_is_the_largest_that_is_read_then_computes_a_bounded_number() -> None:
    drawing = Drawing()
    drawing.add_counter(MAX_REGISTERS - 2)
    while len(drawing.gates) < MAX_GATES:
        drawing.gate("$_NOT_", X)
    assert judge.prove(EDGES, drawing.netlist()) == "bounded"
    assert drawing.computed.total() <= judge.MAX_WORK + 2 * MAX_GATES


@pytest.mark.parametrize("rows", [[], [0], [5, 2, 7], [1 << 40, 3]])
def test_bits_when_turned_twice_then_are_the_same(rows: list[int]) -> None:
    width = 41
    columns = judge._bits(rows, width)
    assert columns == [sum((row >> c & 1) << r for r, row in enumerate(rows)) for c in range(width)]
    assert judge._numbers(columns, len(rows)) == rows
