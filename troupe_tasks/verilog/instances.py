"""Draws instances: a kind of circuit with its parameters, and wrong circuits close to it."""

import json
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.verilog import clocked, logic
from troupe_tasks.verilog.circuit import Circuit, State

NUM_MUTANTS = 8
_TRIES = 60
_CYCLES, _LANES = 60, 12
_MIN_ONES = 0.02


class Kind(NamedTuple):
    """How circuits of a kind are made, drawn and changed a little."""

    make: Callable[[dict[str, Any]], Circuit]
    draw: Callable[[Random], dict[str, Any]]
    change: Callable[[dict[str, Any], Random], dict[str, Any]]


KINDS = {
    "expression": Kind(logic.expression, logic.draw_expression, logic.change_expression),
    "table": Kind(logic.table, logic.draw_table, logic.change_table),
    "unit": Kind(logic.unit, logic.draw_unit, logic.change_unit),
    "counter": Kind(clocked.counter, clocked.draw_counter, clocked.change_counter),
    "detector": Kind(clocked.detector, clocked.draw_detector, clocked.change_detector),
    "shifter": Kind(clocked.shifter, clocked.draw_shifter, clocked.change_shifter),
    "edges": Kind(clocked.edges, clocked.draw_edges, clocked.change_edges),
    "machine": Kind(clocked.machine, clocked.draw_machine, clocked.change_machine),
}


def drawn(rng: Random, split: Split) -> bytes | None:
    """One circuit of ``split``, or None when the draw is of another split or too plain."""
    name = rng.choice(list(KINDS))
    params = KINDS[name].draw(rng)
    text = json.dumps({"kind": name, "params": params}, separators=(",", ":"))
    circuit = KINDS[name].make(params)
    behaviour = behaviour_of(circuit)
    if split_of_key(_key(name, circuit, behaviour)) != split or _is_plain(behaviour):
        return None
    return text.encode()


def split_key(text: str) -> str:
    """Kind, width and behaviour of an instance that ``drawn`` wrote."""
    circuit = circuit_of(text)
    return _key(json.loads(text)["kind"], circuit, behaviour_of(circuit))


def _key(kind: str, circuit: Circuit, behaviour: tuple[int, ...]) -> str:
    return f"{kind}/{circuit.out.width}/{behaviour}"


@lru_cache(maxsize=256)
def circuit_of(text: str) -> Circuit:
    """The circuit of an instance that ``drawn`` wrote."""
    fields = json.loads(text)
    return KINDS[fields["kind"]].make(fields["params"])


@lru_cache(maxsize=256)
def mutants_of(text: str) -> tuple[Circuit, ...]:
    """At most ``NUM_MUTANTS`` wrong circuits with the same ports that behave differently."""
    fields, rng = json.loads(text), Random(f"mutants/{text}")
    kind, right = KINDS[fields["kind"]], circuit_of(text)
    known = {behaviour_of(right)}
    found: list[Circuit] = []
    for _ in range(_TRIES):
        if len(found) == NUM_MUTANTS:
            break
        mutant = kind.make(kind.change(fields["params"], rng))
        behaviour = behaviour_of(mutant)
        if mutant.ports == right.ports and behaviour not in known:
            known.add(behaviour)
            found.append(mutant)
    return tuple(found)


def behaviour_of(circuit: Circuit) -> tuple[int, ...]:
    """Outputs for all inputs; of a clocked circuit, for ``_LANES`` drawn runs of ``_CYCLES``."""
    if not circuit.is_clocked:
        return tuple(circuit.outputs(None, values) for values in circuit.combinations())
    rng, outputs = Random("behaviour"), list[int]()
    for _ in range(_LANES):
        state: State = circuit.start
        for _ in range(_CYCLES):
            values = {port.name: rng.getrandbits(port.width) for port in circuit.inputs}
            outputs.append(circuit.outputs(state, values))
            state = circuit.after(state, values)
    return tuple(outputs)


def _is_plain(behaviour: tuple[int, ...]) -> bool:
    """Almost constant: a constant module would be almost right."""
    return max(map(behaviour.count, set(behaviour))) > (1 - _MIN_ONES) * len(behaviour)
