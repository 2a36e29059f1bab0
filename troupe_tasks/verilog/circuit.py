"""What a circuit must do: its ports, its words, a Python model and a reference in Verilog.

The model is the gold. It stays in the process that judges; the reference is for scripted play.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

TOP = "TopModule"
State = Any
"""A model's state: anything hashable; ``None`` in a circuit without registers."""
Values = Mapping[str, int]
"""Port name to unsigned number."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port of the top module, ``width`` bits."""

    direction: Literal["input", "output"]
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Circuit:
    """One circuit. ``after`` gives the state that follows a rising edge with rst=0; rst=1 gives
    ``start``. ``outputs`` are those before the edge. Without registers ``start`` is None."""

    kind: str
    words: str
    inputs: tuple[Port, ...]
    out: Port
    body: str
    start: State
    outputs: Callable[[State, Values], int]
    after: Callable[[State, Values], State]

    @property
    def is_clocked(self) -> bool:
        """Whether it has clk and rst."""
        return self.start is not None

    @property
    def ports(self) -> tuple[Port, ...]:
        """All ports in order."""
        clocked = (Port("input", "clk", 1), Port("input", "rst", 1)) if self.is_clocked else ()
        return (*clocked, *self.inputs, self.out)

    @property
    def driven(self) -> tuple[Port, ...]:
        """The inputs that rows and vectors give: all but clk."""
        return tuple(p for p in self.ports if p.direction == "input" and p.name != "clk")

    @property
    def header(self) -> str:
        """The first lines of the module, as a designer must write them."""
        lines = [f"  {p.direction} {_range(p.width)}{p.name}" for p in self.ports]
        return f"module {TOP}(\n" + ",\n".join(lines) + "\n);\n"

    @property
    def reference(self) -> str:
        """A right module."""
        return f"{self.header}{self.body}endmodule\n"

    def next_state(self, state: State, values: Values) -> State:
        """The state after a rising edge."""
        if not self.is_clocked:
            return None
        return self.start if values["rst"] else self.after(state, values)

    def combinations(self) -> list[dict[str, int]]:
        """All values of the driven inputs."""
        names = [port.name for port in self.driven]
        ranges = (range(1 << port.width) for port in self.driven)
        return [dict(zip(names, values, strict=True)) for values in product(*ranges)]


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""
