"""The Verilog family: circuits, rows, gates, and that model and reference agree on all states."""

import importlib.util
import json
import time
from dataclasses import replace
from random import Random

import pytest
from code_world import ProcessSandbox

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe.tasks.family import SPLITS
from troupe_tasks.verilog import Verilog, VerilogParams
from troupe_tasks.verilog.guard import module_in, refusal, without_module
from troupe_tasks.verilog.instances import KINDS, behaviour_of, circuit_of, mutants_of
from troupe_tasks.verilog.judge import prove, share
from troupe_tasks.verilog.netlist import NetlistError, read_netlist
from troupe_tasks.verilog.rows import kills, read_rows, row_text, valid
from troupe_tasks.verilog.script import right_rows
from troupe_tasks.verilog.state import decode_state
from troupe_tasks.verilog.synthesis import Synthesis

needs_yosys = pytest.mark.skipif(
    importlib.util.find_spec("pyosys") is None,
    reason="needs yosys: pip install 'troupe[verilog]'",
)
FAMILY = Verilog(VerilogParams())


def instance(kind: str, seed: int) -> str:
    params = KINDS[kind].draw(Random(seed))
    return json.dumps({"kind": kind, "params": params})


COUNTER = json.dumps(
    {"kind": "counter", "params": {"modulo": 5, "step": 1, "is_up": True, "first": 2}}
)


@needs_yosys
@pytest.mark.parametrize("kind", KINDS)
def test_reference_then_is_proved_and_its_mutants_are_not_paid(kind: str) -> None:
    synthesis = Synthesis(ProcessSandbox())
    for seed in range(4):
        text = instance(kind, seed)
        circuit = circuit_of(text)
        built = synthesis.build(circuit.reference, circuit.ports)
        assert built.netlist is not None, built.refusal
        assert share(text, built.netlist) == 1.0
        assert prove(text, built.netlist) == "proved"
        for mutant in mutants_of(text)[:3]:
            wrong = synthesis.build(mutant.reference, mutant.ports).netlist
            assert wrong is not None
            assert prove(text, wrong) == "refuted"


def test_tasks_of_all_splits_then_are_distinct_and_repeat() -> None:
    tasks = FAMILY.taskset()
    behaviours = {
        split: {
            behaviour_of(circuit_of(tasks.task(split, index).payload.decode()))
            for index in range(40)
        }
        for split in SPLITS
    }
    assert tasks.task("test", 3) == Verilog(VerilogParams()).taskset().task("test", 3)
    assert not behaviours["train"] & behaviours["test"]
    assert not behaviours["train"] & behaviours["validation"]
    assert not behaviours["validation"] & behaviours["test"]


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_then_have_the_ports_and_another_behaviour(kind: str) -> None:
    text = instance(kind, 7)
    right = circuit_of(text)
    assert mutants_of(text)
    for mutant in mutants_of(text):
        assert mutant.ports == right.ports
        assert behaviour_of(mutant) != behaviour_of(right)


def test_rows_of_a_counter_then_are_read_judged_and_kill() -> None:
    circuit, mutants = circuit_of(COUNTER), mutants_of(COUNTER)
    text = "rst=1 en=0 -> q=?\nrst=0 en=1 -> q=2\nrst=0 en=1 -> q=3\nrst=0 en=0 -> q=0b100\n"
    read = read_rows(circuit, f"```\n{text}```")
    assert read.refusals == ()
    assert [row_text(circuit, row) for row in read.rows][3] == "rst=0 en=0 -> q=4"
    assert valid(circuit, read.rows) == [True] * 4
    assert 0 < kills(circuit, mutants, read.rows) <= len(mutants)
    assert kills(circuit, mutants, read.rows[:1]) == 0
    unknown = read_rows(circuit, "rst=1 en=0 -> q=2").rows
    assert valid(circuit, unknown) == [False]


def test_scripted_rows_then_are_right_and_kill_most_mutants() -> None:
    killed = total = 0
    for kind in KINDS:
        text = instance(kind, 3)
        circuit, mutants = circuit_of(text), mutants_of(text)
        rows = read_rows(circuit, right_rows(circuit, Random(0)))
        assert rows.refusals == () and all(valid(circuit, rows.rows))
        killed += kills(circuit, mutants, rows.rows)
        total += len(mutants)
    assert killed > 0.6 * total


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("rst=1 -> q=0", "line 1: give rst, en, and nothing else"),
        ("rst=1 en=2 -> q=0", "line 1: a number does not fit its input"),
        ("rst=1 en=1 -> q=8", "line 1: q is a number of 3 bits, or ?"),
        ("rst=1 en=-1 -> q=0", "line 1: it is no row"),
        ("rst=1 en=1 en=1 -> q=0", "line 1: an input is given twice"),
        ("rst=1 en=1 -> p=0", "line 1: the output is called q"),
        ("nothing", "there is no row"),
    ],
)
def test_row_that_cannot_be_read_then_is_named(line: str, why: str) -> None:
    assert read_rows(circuit_of(COUNTER), line).refusals == (why,)


def test_module_in_prose_then_is_cut_out() -> None:
    text = "Here:\n```verilog\nmodule TopModule();\nendmodule\n```\na=1 -> y=0"
    assert module_in(text) == "module TopModule();\nendmodule\n"
    assert "module" not in without_module(text)
    assert module_in("endmodule module") == ""


ONE = "module TopModule(output y);\n  assign y = 1'b1;\nendmodule\n"
PART = "module Part(output y); assign y = 1'b0; endmodule"


@pytest.mark.parametrize(
    "before",
    [
        "The module has one output.\n```verilog\n",
        "We need a TopModule:\n",
        "module outputs are named as asked.\n```\n",
        f"First:\n```\n{PART}\n```\nNo: the module must give 1.\n```verilog\n",
        f"First:\n{PART}\nThat is wrong.\n",
        "// module names\n/* module\nmodule */\n",
        "```verilog\r\n",
    ],
)
def test_module_in_when_prose_says_module_or_drafts_come_before_then_the_last_one(
    before: str,
) -> None:
    for after in ("", "```\n", "```\nThis module has no endmodule that is missing.\n"):
        assert module_in(before + ONE + after) == ONE
        assert "endmodule" not in without_module(before + ONE + "```\na=1 -> y=0")
        assert without_module(before + ONE + "```\na=1 -> y=0").endswith("\n```\na=1 -> y=0")


@pytest.mark.parametrize("between", ["\n", " ", "\n\n// The top:\n", " : Part\n", "; /* a\nb */\n"])
@pytest.mark.parametrize("before", ["", "Here: ", "The module has parts.\n"])
def test_module_in_when_modules_follow_each_other_then_all_of_them(
    before: str, between: str
) -> None:
    both = PART + between + ONE
    assert module_in(before + both + "Done.") == both


def test_module_in_when_rows_come_before_it_then_they_are_read() -> None:
    text = f"The module and a row:\na=1 -> y=0\n```\n{PART}\n```\nb -> c\n```\n{ONE}```\n"
    assert "a=1 -> y=0" in without_module(text)
    assert "b -> c" not in without_module(text)


@pytest.mark.parametrize(
    "inside", ['`include "x"', "initial $system;", "(* keep *) wire z;", "#5;", "prose here `y`"]
)
def test_module_in_when_it_is_not_allowed_then_is_refused_among_drafts_too(inside: str) -> None:
    bad = ONE.replace("\n", f"\n{inside}\n", 1)
    for text in (bad, f"The module:\n```\n{bad}```\n", f"{ONE}Or:\n{bad}", f"{PART}\n{bad}"):
        assert refusal(module_in(text)) == refusal(bad) != ""


@pytest.mark.parametrize(
    "text",
    [
        "module " * 150_000,
        "/*" * 500_000,
        "endmodule" + " " * 900_000 + "module " * 10_000,
        "module x\nendmodule\n" * 50_000,
        "\n" * 500_000 + " " * 500_000 + "x",
        "module endmodule " * 60_000,
        "endmodule : " * 80_000 + "module",
    ],
    ids=["modules", "comments", "spaces", "drafts", "lines", "one line", "labels"],
)
def test_module_in_when_a_million_characters_are_hostile_then_is_quick(text: str) -> None:
    began = time.process_time()
    _ = module_in(text), without_module(text)
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("`define a 1", "macros"),
        ("$display(1)", "system task"),
        ("a // ok\n$finish", "system task"),
        ("#5 a", "delays"),
        ("(* keep *) wire w;", "attributes"),
        ("\\a ", "escaped"),
        ("reg r [0:99999];", "needs a size"),
        ("wire é;", "ASCII"),
        ("x" * 8_001, "characters"),
    ],
)
def test_source_with_more_than_hardware_then_is_refused(source: str, part: str) -> None:
    assert part in refusal(source)


def test_plain_hardware_then_is_not_refused() -> None:
    code = "always @(*) y = $signed(a) >>> 1; m #(4) u(a); // about $display\nassign w = 32'd90000;"
    assert refusal(code) == ""


GATES = {
    "ports": {"a": ["input", [2, 3]], "y": ["output", [4]]},
    "cells": [["$_AND_", {"A": 2, "B": 3, "Y": 4}]],
}


def changed(path: str, value: object) -> str:
    return json.dumps({**GATES, path: value})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        changed("cells", [["$_AND_", {"A": 2, "B": 4, "Y": 4}]]),
        changed("cells", [["$_AND_", {"A": 2, "B": 3, "Y": 2}]]),
        changed("cells", [["$_DLATCH_P_", {"E": 2, "D": 3, "Q": 4}]]),
        changed("cells", [["$_DFF_P_", {"C": 2, "D": 3, "Q": 4}]]),
        changed("cells", [["$_AND_", {"A": 2, "B": "w", "Y": 4}]]),
        changed("cells", [["$_AND_", {"A": 2, "B": True, "Y": 4}]]),
        changed("cells", [["$_AND_", {"A": 2, "B": 3, "Y": 4}]] * 2),
        changed("ports", {"a": ["input", [2]], "y": ["output", [4]]}),
        changed("ports", {"a": ["input", [2, 2]], "y": ["output", [4]]}),
        changed("ports", {"a": ["input", ["0", 3]], "y": ["output", [4]]}),
    ],
)
def test_forged_netlist_then_is_refused(text: str) -> None:
    table = circuit_of(json.dumps({"kind": "table", "params": {"width": 2, "ones": [3]}}))
    ports = (replace(table.ports[0], name="a"), table.ports[1])
    assert read_netlist(json.dumps(GATES), ports).evaluate(3, {"a": [3, 1]}, [], 0) == ([1], [])
    with pytest.raises(NetlistError):
        read_netlist(text, ports)


class BrokenSandbox:
    """A sandbox in which the tool ends before it is ready."""

    level = "process"

    def run(self, program: Program, limits: Limits) -> Execution:
        return Execution("", "", 1, None, 0.0, 0)

    def close(self) -> None:
        pass


@needs_yosys
def test_tool_that_does_not_start_then_is_an_error_and_no_reward() -> None:
    env = FAMILY.environment_in(BrokenSandbox())
    state = env.reset(FAMILY.taskset().task("train", 0))
    with pytest.raises(UnavailableError, match="did not start"):
        env.step(state, "designer", "module TopModule(); endmodule")


def test_missing_tool_then_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgumentError, match=r"pip install 'troupe\[verilog\]'"):
        FAMILY.environment_in(ProcessSandbox())


@needs_yosys
def test_designer_then_sees_where_the_module_differs_and_the_tester_does_not() -> None:
    env = FAMILY.environment_in(ProcessSandbox())
    task = replace(FAMILY.taskset().task("train", 0), payload=COUNTER.encode())
    state = env.step(env.reset(task), "tester", "rst=1 en=0 -> q=?\nrst=0 en=0 -> q=2").state
    circuit = circuit_of(COUNTER)
    wrong = circuit.reference.replace("r <= 2;", "r <= 1;")
    after = env.step(state, "designer", wrong)
    assert decode_state(after.state).gave == (None, 1)
    prompts = [env.observe(after.state, agent)[1].content for agent in ("designer", "tester")]
    assert "rst=0 en=0 -> q=2   your module gives q=1" in prompts[0]
    assert "your module" not in prompts[1]


@needs_yosys
def test_designer_alone_then_writes_rows_beside_the_module() -> None:
    solo = Verilog(VerilogParams(is_solo=True))
    env = solo.environment_in(ProcessSandbox())
    task = replace(solo.taskset().task("train", 0), payload=COUNTER.encode())
    circuit = circuit_of(COUNTER)
    wrong = circuit.reference.replace("r <= 2;", "r <= 1;")
    done = env.step(env.reset(task), "designer", f"{wrong}\nrst=1 en=0 -> q=?\nrst=0 en=0 -> q=2")
    assert "your module gives q=1" in env.observe(done.state, "designer")[1].content
    assert env.step(done.state, "designer", circuit.reference).success
