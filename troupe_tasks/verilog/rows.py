"""The tester's rows: inputs and expected outputs as data. Nothing of them is ever run.

A row is ``a=3 b=5 -> y=8``; ``-> y=?`` expects nothing. In a clocked circuit each row is one cycle
and its output is the one before the rising edge that ends it, with these inputs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from troupe_tasks.verilog.circuit import Circuit, State

MAX_ROWS = 24
_LINE = re.compile(r"([\w=\s]{1,120})->\s*(\w{1,12})\s*=\s*(\w{1,12}|\?)", re.ASCII)
_INPUT = re.compile(r"(\w{1,12})=(\w{1,12})", re.ASCII)
_FENCE = re.compile(r"```\w*")
_ARROW = "->"

Row = tuple[dict[str, int], int | None]
"""Values of the driven inputs, and the expected output."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What was read of an answer; ``refusals`` says which lines could not be."""

    rows: tuple[Row, ...]
    refusals: tuple[str, ...]


def read_rows(circuit: Circuit, text: str) -> Rows:
    """The rows of an answer; lines without an arrow are passed over, fences too."""
    rows: list[Row] = []
    refusals: list[str] = []
    lines = [line.strip() for line in text[:20_000].splitlines() if line.strip()]
    lines = [line for line in lines if not _FENCE.fullmatch(line) and _ARROW in line]
    for number, line in enumerate(lines[:MAX_ROWS], 1):
        row = _row(circuit, line)
        if isinstance(row, str):
            refusals.append(f"line {number}: {row}")
        else:
            rows.append(row)
    if len(lines) > MAX_ROWS:
        refusals.append(f"only {MAX_ROWS} rows are read")
    if not lines:
        refusals.append("there is no row")
    return Rows(tuple(rows), tuple(refusals))


def _row(circuit: Circuit, line: str) -> Row | str:
    match = _LINE.fullmatch(line)
    if match is None:
        return "it is no row"
    if match[2] != circuit.out.name:
        return f"the output is called {circuit.out.name}"
    given: dict[str, int] = {}
    for part in match[1].split():
        pair = _INPUT.fullmatch(part)
        value = None if pair is None else _number(pair[2])
        if pair is None or value is None:
            return "an input is name=number"
        if pair[1] in given:
            return "an input is given twice"
        given[pair[1]] = value
    widths = {port.name: port.width for port in circuit.driven}
    if set(given) != set(widths):
        return f"give {', '.join(widths)}, and nothing else"
    if any(value >> widths[name] for name, value in given.items()):
        return "a number does not fit its input"
    wanted = None if match[3] == "?" else _number(match[3])
    if match[3] != "?" and (wanted is None or wanted >> circuit.out.width):
        return f"{circuit.out.name} is a number of {circuit.out.width} bits, or ?"
    return given, wanted


def _number(text: str) -> int | None:
    try:
        return int(text, 0) if text[:2].lower() in ("0b", "0x") else int(text)
    except ValueError:
        return None


def row_text(circuit: Circuit, row: Row) -> str:
    """The row as it is written."""
    given, wanted = row
    inputs = " ".join(f"{name}={value}" for name, value in given.items())
    return f"{inputs} -> {circuit.out.name}={'?' if wanted is None else wanted}"


def gold(circuit: Circuit, rows: Sequence[Row]) -> list[int | None]:
    """The right outputs; None before the first reset, where nothing is known."""
    outputs: list[int | None] = []
    state: State = None
    for given, _ in rows:
        is_known = state is not None or not circuit.is_clocked
        outputs.append(circuit.outputs(state, given) if is_known else None)
        if circuit.is_clocked:
            is_reset = bool(given["rst"])
            state = circuit.start if is_reset else circuit.after(state, given) if is_known else None
    return outputs


def valid(circuit: Circuit, rows: Sequence[Row]) -> list[bool]:
    """Which rows expect what is right; one that expects nothing is right."""
    right = gold(circuit, rows)
    return [wanted is None or wanted == out for (_, wanted), out in zip(rows, right, strict=True)]


def kills(circuit: Circuit, mutants: Sequence[Circuit], rows: Sequence[Row]) -> int:
    """How many mutants give another output than a right row expects."""
    is_valid = valid(circuit, rows)

    def is_killed(mutant: Circuit) -> bool:
        outputs = gold(mutant, rows)
        return any(
            ok and wanted is not None and wanted != out
            for ok, (_, wanted), out in zip(is_valid, rows, outputs, strict=True)
        )

    return sum(map(is_killed, mutants))
