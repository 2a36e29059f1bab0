"""Published problems (VerilogEval): their row, and a judge that compares gates with gates.

The published reference is built like the agent's module, and both are simulated on the same drawn
inputs. An output counts where the reference is known whatever its registers hold at the start and
its undefined nets are: a don't-care of the reference asks nothing. Nothing is proved beyond the
vectors, unless there are no registers and few inputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.taskset import PreparedRow
from troupe_tasks.verilog.circuit import TOP, Port
from troupe_tasks.verilog.netlist import Netlist
from troupe_tasks.verilog.ternary import evaluate_unknown

LANES, CYCLES = 256, 256
MAX_EXHAUSTED_BITS = 16
"""All inputs of a circuit without registers are tried up to so many bits, else ``_DRAWN``."""
_DRAWN = 4_096
_CHANCES = (1 / 32, 1 / 2, 31 / 32)
"""In a whole lane an input of one bit is set with one of these chances, so that some resets stay
away and some loads come rarely."""

Lanes = dict[str, list[int]]


class PortRow(BaseModel):
    """One port of the module to write."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    direction: Literal["input", "output"]
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,40}$")
    width: int = Field(ge=1, le=1024)

    @property
    def told(self) -> str:
        """As problems write it: ``input d (8 bits)``; a range would say which bit is the first."""
        bits = f" ({self.width} bits)" if self.width > 1 else ""
        return f"{self.direction} {self.name}{bits}"


class VerilogRow(PreparedRow):
    """One published problem; ``reference`` is a right module called TopModule.

    Example: ``VerilogRow(id="verilogeval/1", words="...", reference="module TopModule...",
    ports=(PortRow(direction="output", name="zero", width=1),))``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: str
    reference: str
    ports: tuple[PortRow, ...] = Field(min_length=1)
    source: str = ""

    @property
    def compared(self) -> str:
        """The words, signs and case included: they tell one operator or port from another."""
        return " ".join(self.words.split())

    def port_list(self) -> tuple[Port, ...]:
        """The ports as the judge knows them."""
        return tuple(Port(port.direction, port.name, port.width) for port in self.ports)

    def random_module(self, rng: Random) -> str:
        """A module that is built: every output a drawn number."""
        sides = [f"  {p.direction} [{p.width - 1}:0] {p.name}" for p in self.ports]
        lines = [
            f"  assign {p.name} = {p.width}'b{rng.getrandbits(p.width):b};"
            for p in self.ports
            if p.direction == "output"
        ]
        return "\n".join([f"module {TOP}(", ",\n".join(sides), ");", *lines, "endmodule\n"])


@dataclass(frozen=True, slots=True)
class Gold:
    """What the reference gives: for each cycle the inputs, and for each output bit its lanes and
    those lanes in which they are known."""

    mask: int
    given: tuple[Lanes, ...]
    outputs: tuple[tuple[tuple[int, int], ...], ...]
    constant: float
    """Share of the known outputs that the best constant of each bit gets right."""

    @property
    def num_known(self) -> int:
        """Output bits that are known, over all cycles and lanes."""
        return sum(known.bit_count() for cycle in self.outputs for _, known in cycle)


def gold_of(row: VerilogRow, reference: Netlist) -> Gold:
    """Simulate the reference from several starts."""
    rng = Random(f"published/{row.id}")
    inputs = [port for port in row.port_list() if port.name in reference.inputs]
    if reference.registers:
        mask = (1 << LANES) - 1
        given = tuple(_drawn_cycles(inputs, rng))
    else:
        mask, lanes = _without_registers(inputs, rng)
        given = (lanes,)
    state = [(mask, mask)] * len(reference.registers)
    outputs: list[tuple[tuple[int, int], ...]] = []
    for lanes in given:
        pairs, state = evaluate_unknown(reference, mask, lanes, state)
        outputs.append(tuple((one & ~zero, zero ^ one) for zero, one in pairs))
    return Gold(mask, given, tuple(outputs), _constant(outputs))


def right_share(gold: Gold, netlist: Netlist) -> tuple[float, tuple[int, ...]]:
    """How much is right above what a constant gets, 0 to 1, and the wrong output bits.

    It is 1 only when every known output is right, from every start of the module's registers.
    """
    wrong = [[0] * len(cycle) for cycle in gold.outputs]
    for run in _runs(netlist, gold.mask, gold.given):
        for marks, cycle, right in zip(wrong, run, gold.outputs, strict=True):
            for bit, (given, (value, known)) in enumerate(zip(cycle, right, strict=True)):
                marks[bit] |= (given ^ value) & known
    num_wrong = sum(lanes.bit_count() for cycle in wrong for lanes in cycle)
    if not num_wrong:
        return 1.0, ()
    agreed, left = 1 - num_wrong / gold.num_known, 1 - gold.constant
    bits = tuple(bit for bit in range(len(wrong[0])) if any(cycle[bit] for cycle in wrong))
    return max(0.0, min(0.99, (agreed - gold.constant) / left)) if left else 0.0, bits


def _runs(netlist: Netlist, mask: int, given: Sequence[Lanes]) -> Iterator[list[list[int]]]:
    """Outputs of each cycle, from registers that are all 0, all 1 and drawn, undefined nets too.

    With both there are three runs: the drawn starts have undefined nets of 0, the others 1 and
    drawn ones, so that some lanes try each pair of values.
    """
    rng = Random("starts")
    lanes = mask.bit_length()
    drawn = [rng.getrandbits(lanes) for _ in netlist.registers]
    starts = [drawn, [0] * len(drawn), [mask] * len(drawn)] if drawn else [drawn]
    choices = (0, mask, rng.getrandbits(lanes)) if netlist.has_undefined else (0,)
    for number in range(max(len(starts), len(choices))):
        undefined = choices[number % len(choices)]
        state, outputs = starts[number % len(starts)], list[list[int]]()
        for lanes_of in given:
            bits, state = netlist.evaluate(mask, lanes_of, state, undefined)
            outputs.append(bits)
        yield outputs


def _constant(outputs: Sequence[Sequence[tuple[int, int]]]) -> float:
    best = total = 0
    for column in zip(*outputs, strict=True):
        known = sum(seen.bit_count() for _, seen in column)
        ones = sum((lanes & seen).bit_count() for lanes, seen in column)
        best, total = best + max(ones, known - ones), total + known
    return best / total if total else 1.0


def _drawn_cycles(inputs: Sequence[Port], rng: Random) -> Iterator[Lanes]:
    chances = {port.name: [rng.choice(_CHANCES) for _ in range(LANES)] for port in inputs}
    for _ in range(CYCLES):
        yield {
            port.name: (
                [sum((rng.random() < p) << lane for lane, p in enumerate(chances[port.name]))]
                if port.width == 1
                else [rng.getrandbits(LANES) for _ in range(port.width)]
            )
            for port in inputs
        }


def _without_registers(inputs: Sequence[Port], rng: Random) -> tuple[int, Lanes]:
    """All inputs as lanes, or drawn ones where there are too many."""
    num_bits = sum(port.width for port in inputs)
    is_all = num_bits <= MAX_EXHAUSTED_BITS
    lanes = 1 << num_bits if is_all else _DRAWN
    mask = (1 << lanes) - 1
    columns = iter(
        _counting(bit, lanes) if is_all else rng.getrandbits(lanes) for bit in range(num_bits)
    )
    return mask, {port.name: [next(columns) for _ in range(port.width)] for port in inputs}


def _counting(bit: int, lanes: int) -> int:
    """Bit ``bit`` of the numbers 0, 1, 2, ... as lanes: ``1 << bit`` zeros, as many ones, again."""
    half = 1 << bit
    once = ((1 << half) - 1) << half
    return once * (((1 << lanes) - 1) // ((1 << 2 * half) - 1))
