"""yosys in the real sandbox: builds a module, and is ended when a module is a bomb."""

import pytest

from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox.pool import LocalSandbox
from troupe_tasks.verilog.circuit import Port
from troupe_tasks.verilog.synthesis import SHOWN_AT, Synthesis

pytest.importorskip("pyosys", reason="needs yosys: pip install 'troupe[verilog]'")

PORTS = (Port("input", "a", 2), Port("output", "y", 1))
HEAD = "module TopModule(input [1:0] a, output y);\n"
GOOD = f"{HEAD} assign y = ^a;\nendmodule\n"
BOMB = (
    f"{HEAD} genvar i, j; generate for (i=0;i<4000;i=i+1) begin:g for (j=0;j<4000;j=j+1) begin:h "
    "wire [63:0] w = i; end end endgenerate\n assign y = ^a;\nendmodule\n"
)


def test_bomb_between_two_modules_then_is_ended_and_they_are_built(sandbox: LocalSandbox) -> None:
    synthesis = Synthesis(sandbox)
    before = synthesis.build(GOOD, PORTS)
    bomb = synthesis.build(BOMB, PORTS)
    after = synthesis.build(GOOD, PORTS)
    assert before.netlist is not None and after.netlist is not None
    assert (bomb.netlist, bomb.refusal) == (
        None,
        "the module takes too long or too much memory to build",
    )


def test_packages_then_are_read_only_alone_and_without_a_procfs(sandbox: LocalSandbox) -> None:
    source = f"""
import os
print(os.listdir("/packages"), os.listdir("/proc"), os.listdir("/proc/self"))
for act in (lambda: os.mkdir("{SHOWN_AT}/x"), lambda: os.unlink("/proc/self/exe"),
            lambda: open("{SHOWN_AT}/__init__.py", "a"), lambda: os.mkdir("/proc/1")):
    try:
        act()
        print("written")
    except OSError:
        print("refused")
"""
    done = sandbox.run(Program(source), Limits())
    assert done.stdout.split("\n")[0] == "['pyosys'] ['self'] ['exe']"
    assert done.stdout.split()[3:] == ["refused"] * 4
