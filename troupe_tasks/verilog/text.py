"""The prompts of the Verilog family: the tester sees words and ports, the designer rows as well."""

from troupe.tasks.family import Message, Observation
from troupe.tasks.quoting import quoted
from troupe_tasks.verilog.circuit import TOP
from troupe_tasks.verilog.guard import MAX_SOURCE
from troupe_tasks.verilog.rows import MAX_ROWS, row_text
from troupe_tasks.verilog.state import State

TESTER, DESIGNER = "tester", "designer"
AGENTS = (TESTER, DESIGNER)

_MAX_SHOWN_LINES = 120

_ROWS = (
    f"A row is one line, at most {MAX_ROWS}: every input but clk as name=number, then -> and the "
    "output, for example: {example}\nWrite ? for an output that is unknown. "
)
_CYCLES = (
    "Rows are the cycles of one run, from registers with unknown contents. A row's output is the "
    "one before the rising edge of clk that ends the cycle, so begin with a row with rst=1 whose "
    "output is ?. "
)
_MODULE = (
    f"Write one module {TOP} with exactly the ports below, in Verilog that can be built as gates: "
    "no delays, system tasks, macros, latches or asynchronous resets; registers start with unknown "
    f"contents; at most {MAX_SOURCE} characters. It is compared with what the circuit must do, on "
    "all inputs."
)
_RULES = {
    TESTER: "You test a digital circuit that a designer builds. Write rows of inputs and the right "
    "output; the designer sees where the module gives something else. Choose rows that catch "
    "mistakes. ",
    DESIGNER: "You design a digital circuit. A tester writes rows of inputs and expected outputs; "
    "they may have mistakes, the description counts. " + _MODULE,
}
_SOLO = (
    "You design a digital circuit. " + _MODULE + " Beside the module you may write rows of inputs "
    "and expected outputs; you see what the module gives for them. "
)


def observation(state: State, agent: str, *, is_solo: bool) -> Observation:
    """The prompt of ``agent``."""
    circuit = state.circuit
    rules = _SOLO if is_solo else _RULES[agent]
    if is_solo or agent == TESTER:
        rules += _ROWS.format(example=_example(state)) + (_CYCLES if circuit.is_clocked else "")
    parts = [f"Circuit: {circuit.words}", "Ports:", circuit.header.rstrip("\n")]
    if is_solo or agent == TESTER:
        parts += [f"Not read: {refusal}" for refusal in state.row_refusals]
    if is_solo or agent == DESIGNER:
        parts += _last_module(state)
    if state.rows:
        parts += ["Rows:", *_rows(state, is_shown=is_solo or agent == DESIGNER)]
    return Message("system", rules), Message("user", "\n".join(parts))


def _example(state: State) -> str:
    circuit = state.circuit
    return row_text(circuit, ({port.name: 1 for port in circuit.driven}, None))


def _last_module(state: State) -> list[str]:
    if not state.source:
        return [f"Not done: {state.refusal}."] if state.refusal else []
    result = "It was built." if state.is_built else f"It was not built: {state.refusal}."
    if state.is_built:
        result += " It is not right yet."
    shown = quoted(state.source, max_chars=MAX_SOURCE, max_lines=_MAX_SHOWN_LINES)
    return ["Your last module:", shown, result]


def _rows(state: State, *, is_shown: bool) -> list[str]:
    """The rows; to whoever designs, also what the last module gives where that differs."""
    circuit, lines = state.circuit, list[str]()
    for number, row in enumerate(state.rows):
        line = row_text(circuit, row)
        if is_shown and state.is_built and row[1] is not None:
            given = state.gave[number]
            if given != row[1]:
                gives = "something unknown" if given is None else f"{circuit.out.name}={given}"
                line += f"   your module gives {gives}"
        lines.append(line)
    return lines
