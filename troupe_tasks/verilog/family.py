"""Verilog as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset, row_of_key
from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Environment, Split, Task, Taskset
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.verilog import script
from troupe_tasks.verilog.circuit import TOP
from troupe_tasks.verilog.environment import RETURN_BOUND, VerilogEnvironment
from troupe_tasks.verilog.instances import circuit_of, drawn, split_key
from troupe_tasks.verilog.published import VerilogRow
from troupe_tasks.verilog.published_environment import PublishedEnvironment, decode_published
from troupe_tasks.verilog.state import decode_state
from troupe_tasks.verilog.text import AGENTS, DESIGNER, TESTER

_WORDS = (
    *("always", "assign", "begin", "case", "default", "else", "end", "endcase", "endmodule", "if"),
    *("input", "module", "output", "posedge", "reg", "wire", "clk", "rst", TOP),
)


class VerilogParams(BaseModel):
    """Which circuits, and who builds them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the circuits.")
    is_solo: bool = Field(
        default=False, description="One agent, designer, tests and builds; else tester, designer."
    )
    data: Path | dict[Split, Path] | None = Field(
        default=None, description="Prepared problems (VerilogEval), for one agent; none: drawn."
    )

    @model_validator(mode="after")
    def _published_for_one(self) -> "VerilogParams":
        if self.data is not None and not self.is_solo:
            raise ValueError("prepared problems are for one agent: set is_solo to true")
        return self


class Verilog:
    """A tester writes rows, a designer a module; gates are compared with a model.

    Example: ``Verilog(VerilogParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "verilog"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = VerilogParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        TESTER: {"format": 0.1, "valid": 0.1, "kills": 0.2},
        DESIGNER: {"format": 0.1, "builds": 0.1},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": [TESTER, DESIGNER],
        "max_turns": 3,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = VerilogParams.model_validate(params.model_dump())
        data = self._params.data
        self._rows = None if data is None else SplitRows(data, VerilogRow)
        if self._params.is_solo:
            # What an instance declares hides the class's.
            vars(self).update(
                agents=(DESIGNER,),
                local_terms={DESIGNER: {"format": 0.1, "builds": 0.1}},
                usual_workflow={"kind": "turn_based", "order": [DESIGNER], "max_turns": 3},
            )

    def taskset(self) -> Taskset:
        """Circuits without end, each of the split that its behaviour names; or prepared ones."""
        if self._rows is not None:
            return PreparedTaskset(self._rows, by_key=True)
        return DrawnTaskset(self.name, self._params.seed, drawn, hint="use another seed")

    def split_key(self, task: Task) -> str | None:
        """What the circuit does, however it is told."""
        return None if self._rows is not None else split_key(task.payload.decode())

    def environment(self) -> Environment:
        """Refused: modules are built in a sandbox only."""
        raise InvalidArgumentError(
            "task 'verilog' runs a tool on what agents write; use environment_in(sandbox), as "
            "troupe.tasks.registry.make_environment does.",
            pointer="/task/name",
        )

    def environment_in(self, sandbox: Sandbox) -> Environment:
        """The family's judge. Raises InvalidArgumentError when yosys is not installed."""
        if self._rows is not None:
            return PublishedEnvironment(self._row, sandbox)
        return VerilogEnvironment(self.agents, sandbox)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The tester writes right rows, the designer the reference."""
        if self._rows is not None:
            return self._row(decode_published(state).key).reference
        circuit = decode_state(state).circuit
        return script.right_rows(circuit, rng) if agent == TESTER else circuit.reference

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Rows with drawn outputs, and a drawn module."""
        if self._rows is not None:
            return self._row(decode_published(state).key).random_module(rng)
        circuit = decode_state(state).circuit
        if agent == TESTER:
            return script.random_rows(circuit, rng)
        return script.random_module(circuit, rng)

    def hidden_texts(self, task: Task) -> list[str]:
        """The body of the reference."""
        if self._rows is not None:
            return [self._row(task.payload.decode()).reference.partition(";")[2].strip()]
        return [circuit_of(task.payload.decode()).body.strip()]

    def vocabulary(self) -> Sequence[str]:
        """Verilog's words, and the mark of a row."""
        return [*_WORDS, "->"]

    def _row(self, key: str) -> VerilogRow:
        assert self._rows is not None
        return row_of_key(self._rows, key)
