"""Judges one turn of the tester or the designer.

The team is paid for the share of outputs that are right above what a constant gets, and most of it
only when all are right and no state that a reset leads to refutes it. Each best is paid once.
"""

from collections.abc import Mapping
from dataclasses import replace

from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.verilog import text
from troupe_tasks.verilog.guard import MAX_SOURCE, module_in, without_module
from troupe_tasks.verilog.instances import mutants_of
from troupe_tasks.verilog.judge import given_by, prove, share
from troupe_tasks.verilog.netlist import Netlist
from troupe_tasks.verilog.rows import kills, read_rows, valid
from troupe_tasks.verilog.state import State, decode_state, encode_state
from troupe_tasks.verilog.synthesis import Synthesis
from troupe_tasks.verilog.text import TESTER

RETURN_BOUND = 1.0
PARTIAL = 0.3
"""What right outputs are worth while any is wrong, times their share."""


class VerilogEnvironment:
    """The pure function of Verilog: see ``troupe.tasks.family.Environment``."""

    def __init__(self, agents: tuple[str, ...], sandbox: Sandbox) -> None:
        self._agents = agents
        self._synthesis = Synthesis(sandbox)

    @property
    def _is_solo(self) -> bool:
        return len(self._agents) == 1

    def reset(self, task: Task) -> bytes:
        """No rows and no module."""
        return encode_state(State(task.payload.decode()))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` knows; empty when the circuit is right."""
        decoded = decode_state(state)
        if not self._may_act(decoded, agent):
            return ()
        return text.observation(decoded, agent, is_solo=self._is_solo)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Read rows, or build and compare a module; one agent alone does both in one answer."""
        before = decode_state(state)
        if not self._may_act(before, agent):
            return _transition(before, before, {})
        if agent == TESTER:
            return _transition(before, *self._tested(before, action))
        middle = before
        if self._is_solo and "->" in (rest := without_module(action)):
            read = read_rows(before.circuit, rest)
            middle = replace(before, rows=read.rows, row_refusals=read.refusals, gave=())
            middle = replace(middle, is_built=False)
        return _transition(before, *self._designed(middle, action))

    def _may_act(self, state: State, agent: str) -> bool:
        known_agent(agent, self._agents, task="Verilog")
        return not state.is_solved

    def _tested(self, before: State, action: str) -> tuple[State, dict[str, float]]:
        """Rows replace those before; what the last module gives for them is found anew."""
        circuit, read = before.circuit, read_rows(before.circuit, action)
        mutants = mutants_of(before.instance)
        killed = kills(circuit, mutants, read.rows) / len(mutants) if mutants else 0.0
        is_valid = valid(circuit, read.rows)
        terms = {
            "format": -1.0 if read.refusals else 0.0,
            "valid": -is_valid.count(False) / len(is_valid) if is_valid else -1.0,
            "kills": max(0.0, killed - before.best_kills),
        }
        after = replace(
            before,
            rows=read.rows,
            row_refusals=read.refusals[:3],
            gave=(),
            best_kills=max(before.best_kills, killed),
        )
        if before.is_built:
            built = self._synthesis.build(before.source, circuit.ports)
            after = _with_gave(after, built.netlist)
        return after, terms

    def _designed(self, before: State, action: str) -> tuple[State, dict[str, float]]:
        source = module_in(action)
        if not source:
            why = "the answer has no module"
            return replace(before, refusal=why), {"format": -1.0, "builds": -1.0}
        built = self._synthesis.build(source, before.circuit.ports)
        after = replace(before, source=source[:MAX_SOURCE], refusal=built.refusal)
        after = _with_gave(after, built.netlist)
        terms = {"format": 0.0, "builds": 0.0 if built.netlist else -1.0}
        if built.netlist is None:
            return after, terms
        right = share(before.instance, built.netlist)
        is_solved = right == 1.0 and prove(before.instance, built.netlist) != "refuted"
        total = RETURN_BOUND if is_solved else PARTIAL * right
        return replace(after, best=max(after.best, total), is_solved=is_solved), terms


def _with_gave(state: State, netlist: Netlist | None) -> State:
    gave = () if netlist is None else tuple(given_by(state.circuit, netlist, state.rows))
    return replace(state, gave=gave, is_built=netlist is not None)


def _transition(before: State, after: State, terms: Mapping[str, float]) -> Transition:
    info = {
        "kind": after.circuit.kind,
        "best": after.best,
        "kills": after.best_kills,
        "is_built": after.is_built,
        "refusal": after.refusal,
    }
    return Transition(
        encode_state(after),
        after.best - before.best,
        terms,
        done=after.is_solved,
        success=after.is_solved,
        info=info,
    )
