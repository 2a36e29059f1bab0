"""Scripted players: right rows and the reference, and players that guess."""

from random import Random

from troupe_tasks.verilog.circuit import Circuit
from troupe_tasks.verilog.rows import MAX_ROWS, Row, gold, row_text

_OPERATORS = ("&", "|", "^", "+", "-")
_RESET_AGAIN = 0.05


def right_rows(circuit: Circuit, rng: Random) -> str:
    """Drawn inputs with the right outputs."""
    rows: list[Row] = [(given, None) for given in _drawn(circuit, rng)]
    outputs = gold(circuit, rows)
    right = [(given, out) for (given, _), out in zip(rows, outputs, strict=True)]
    return "\n".join(row_text(circuit, row) for row in right)


def random_rows(circuit: Circuit, rng: Random) -> str:
    """Drawn inputs with drawn outputs."""
    width = circuit.out.width
    rows: list[Row] = [(given, rng.getrandbits(width)) for given in _drawn(circuit, rng)[:6]]
    return "\n".join(row_text(circuit, row) for row in rows)


def _drawn(circuit: Circuit, rng: Random) -> list[dict[str, int]]:
    return [
        {port.name: _value(port.name, port.width, cycle, rng) for port in circuit.driven}
        for cycle in range(MAX_ROWS)
    ]


def _value(name: str, width: int, cycle: int, rng: Random) -> int:
    if name == "rst":
        return int(cycle == 0 or rng.random() < _RESET_AGAIN)
    return rng.getrandbits(width)


def random_module(circuit: Circuit, rng: Random) -> str:
    """A module that is built: a drawn expression of the inputs and a number, clocked or not."""
    names = [port.name for port in circuit.inputs]
    width, out = circuit.out.width, circuit.out.name
    parts = [rng.choice([*names, f"{width}'d{rng.getrandbits(width)}"]) for _ in range(3)]
    text = f"{parts[0]} {rng.choice(_OPERATORS)} {parts[1]} {rng.choice(_OPERATORS)} {parts[2]}"
    if not circuit.is_clocked:
        return f"{circuit.header}  assign {out} = {text};\nendmodule\n"
    return (
        f"{circuit.header}  reg [{width - 1}:0] r;\n  assign {out} = r;\n"
        f"  always @(posedge clk) r <= rst ? {rng.getrandbits(width)} : r + ({text});\nendmodule\n"
    )
