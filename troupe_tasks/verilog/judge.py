"""Compares gates with the model: 64 sequences for progress, then all reachable states for success.

All budgets are counts, so a judgement is the same each time. The model never enters the sandbox.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Literal

from troupe_tasks.verilog.circuit import Circuit, State
from troupe_tasks.verilog.instances import circuit_of
from troupe_tasks.verilog.netlist import Netlist
from troupe_tasks.verilog.rows import Row

LANES, CYCLES = 64, 100
_RESET_CYCLES = 1
_RESET_CHANCE = 1 / 16
MAX_STEPS = 1 << 16
"""Steps (a pair of states under one combination of inputs) that the proof looks at."""
MAX_WORK = 1 << 22
"""Gates and registers that the proof computes, each again for every further 512 steps at once."""
_BATCH, _STEPS_AT_ONCE = 4_096, 512

Proof = Literal["proved", "bounded", "refuted"]
"""``bounded``: no counterexample within the two bounds, and not all states were seen."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Inputs of each cycle as lanes, outputs of each cycle as lanes or None before a reset."""

    lanes: int
    given: tuple[dict[str, list[int]], ...]
    outputs: tuple[list[int] | None, ...]
    constant: float
    """Share of outputs that the best constant gets right."""


@lru_cache(maxsize=128)
def vectors_of(text: str) -> Vectors:
    """The vectors of an instance; a circuit without registers gets all its inputs in one cycle."""
    circuit = circuit_of(text)
    if not circuit.is_clocked:
        every = circuit.combinations()
        right = [circuit.outputs(None, values) for values in every]
        all_inputs = (_packed(circuit, every),)
        return Vectors(len(every), all_inputs, (_bits(right, circuit.out.width),), _constant(right))
    rng = Random(f"vectors/{text}")
    states: list[State] = [None] * LANES
    given: list[dict[str, list[int]]] = []
    outputs: list[list[int] | None] = []
    seen: list[int] = []
    for cycle in range(CYCLES):
        values = [_drawn(circuit, rng, cycle < _RESET_CYCLES) for _ in range(LANES)]
        given.append(_packed(circuit, values))
        if cycle < _RESET_CYCLES:
            outputs.append(None)
        else:
            right = [circuit.outputs(s, v) for s, v in zip(states, values, strict=True)]
            seen += right
            outputs.append(_bits(right, circuit.out.width))
        states = [circuit.next_state(s, v) for s, v in zip(states, values, strict=True)]
    return Vectors(LANES, tuple(given), tuple(outputs), _constant(seen))


def _drawn(circuit: Circuit, rng: Random, is_reset: bool) -> dict[str, int]:
    values = {port.name: rng.getrandbits(port.width) for port in circuit.inputs}
    return {"rst": int(is_reset or rng.random() < _RESET_CHANCE), **values}


def _packed(circuit: Circuit, values: Sequence[Mapping[str, int]]) -> dict[str, list[int]]:
    return {
        port.name: _bits([each[port.name] for each in values], port.width)
        for port in circuit.driven
    }


def _bits(numbers: Sequence[int], width: int) -> list[int]:
    """Lanes of each bit, lowest bit first."""
    return _turned(numbers, width)


def _numbers(bits: Sequence[int], lanes: int) -> list[int]:
    """The inverse of ``_bits``."""
    return _turned(bits, lanes)


def _turned(rows: Sequence[int], width: int) -> list[int]:
    """The columns of rows of ``width`` bits: bit r of column c is bit c of row r."""
    if not rows or not width:
        return [0] * width
    mask = (1 << width) - 1
    texts = [f"{row & mask:0{width}b}" for row in reversed(rows)]
    return [int("".join(column), 2) for column in zip(*texts, strict=True)][::-1]


def _constant(outputs: Sequence[int]) -> float:
    return max(Counter(outputs).values()) / len(outputs)


def share(text: str, netlist: Netlist) -> float:
    """How much of the outputs is right, above what a constant gets: 0 to 1; 1 when all are.

    Registers start with different bits in each lane. Where a net is undefined an output counts
    only if it is right with 0 and with 1.
    """
    vectors = vectors_of(text)
    mask, rng = (1 << vectors.lanes) - 1, Random(f"registers/{text}")
    first = [rng.getrandbits(vectors.lanes) for _ in netlist.registers]
    wrong = [0] * len(vectors.given)
    for undefined in _choices(netlist, mask):
        state = first
        for cycle, (given, right) in enumerate(zip(vectors.given, vectors.outputs, strict=True)):
            outputs, state = netlist.evaluate(mask, given, state, undefined)
            if right is not None:
                for bit, gold in zip(outputs, right, strict=True):
                    wrong[cycle] |= bit ^ gold
    num = vectors.lanes * sum(right is not None for right in vectors.outputs)
    agreed = 1 - sum(bits.bit_count() for bits in wrong) / num
    if agreed == 1.0:
        return 1.0
    left = 1 - vectors.constant
    return max(0.0, (agreed - vectors.constant) / left) if left else 0.0


def _choices(netlist: Netlist, mask: int) -> tuple[int, ...]:
    return (0, mask) if netlist.has_undefined else (0,)


def prove(text: str, netlist: Netlist) -> Proof:
    """Visit all states of model and gates that a reset can lead to, under all inputs."""
    circuit = circuit_of(text)
    mask = (1 << LANES) - 1
    verdicts = {_explored(circuit, netlist, bool(u)) for u in _choices(netlist, mask)}
    return next(v for v in ("refuted", "bounded", "proved") if v in verdicts)


def _explored(circuit: Circuit, netlist: Netlist, is_one: bool) -> Proof:
    every = circuit.combinations()
    after_reset = _after_reset(circuit, netlist, every, is_one)
    frontier: list[tuple[State, int]] = [(circuit.start, state) for state in after_reset]
    known, num_steps, work = set(frontier), 0, 0
    size = len(netlist.gates) + len(netlist.registers)
    while frontier:
        found: dict[tuple[State, int], None] = {}
        for batch in _batches(frontier, len(every)):
            num_steps += len(batch) * len(every)
            work += size * (1 + len(batch) * len(every) // _STEPS_AT_ONCE)
            if num_steps > MAX_STEPS or work > MAX_WORK:
                return "bounded"
            steps = [(model, gates, values) for model, gates in batch for values in every]
            nexts = _stepped(circuit, netlist, steps, is_one)
            if nexts is None:
                return "refuted"
            found.update(dict.fromkeys(nexts))
        frontier = [pair for pair in found if pair not in known]
        known.update(frontier)
    return "proved"


def _batches(
    frontier: Sequence[tuple[State, int]], num_inputs: int
) -> Iterator[Sequence[tuple[State, int]]]:
    size = max(1, _BATCH // num_inputs)
    return (frontier[at : at + size] for at in range(0, len(frontier), size))


def _after_reset(
    circuit: Circuit, netlist: Netlist, every: Sequence[dict[str, int]], is_one: bool
) -> list[int]:
    """States of the registers after one edge with rst=1, from drawn states and all zero or one."""
    if not circuit.is_clocked:
        return [0]
    resets = [values for values in every if values["rst"]]
    rng, num = Random("reset"), len(netlist.registers)
    starts = [0, (1 << num) - 1, *(rng.getrandbits(num) if num else 0 for _ in range(LANES - 2))]
    pairs = [(start, values) for start in starts for values in resets]
    mask = (1 << len(pairs)) - 1
    state = _bits([start for start, _ in pairs], num)
    given = _packed(circuit, [values for _, values in pairs])
    _, after = netlist.evaluate(mask, given, state, mask * is_one)
    return sorted(set(_numbers(after, len(pairs))))


def _stepped(
    circuit: Circuit,
    netlist: Netlist,
    steps: Sequence[tuple[State, int, dict[str, int]]],
    is_one: bool,
) -> list[tuple[State, int]] | None:
    """The states after each step; None when an output is wrong."""
    mask = (1 << len(steps)) - 1
    state = _bits([gates for _, gates, _ in steps], len(netlist.registers))
    given = _packed(circuit, [values for _, _, values in steps])
    outputs, after = netlist.evaluate(mask, given, state, mask * is_one)
    right = _bits([circuit.outputs(model, values) for model, _, values in steps], circuit.out.width)
    if outputs != right:
        return None
    models = [circuit.next_state(model, values) for model, _, values in steps]
    return list(zip(models, _numbers(after, len(steps)), strict=True))


def given_by(circuit: Circuit, netlist: Netlist, rows: Sequence[Row]) -> list[int | None]:
    """What the gates give for the rows; None where it depends on what is unknown at the start."""
    runs: list[list[int]] = []
    for unknown in (0, 1):
        state, outputs = [unknown] * len(netlist.registers), list[int]()
        for values, _ in rows:
            bits, state = netlist.evaluate(1, _packed(circuit, [values]), state, unknown)
            outputs += _numbers(bits, 1)
        runs.append(outputs)
    return [a if a == b else None for a, b in zip(*runs, strict=True)]
