"""What pays nothing in the Verilog family: prints, peeks, files, forged ports, undefined outputs.

The designs are for a clocked 4-bit counter. Needs pyosys; skips with the reason without it.
"""

import json

import pytest
from code_world import ProcessSandbox

from troupe.tasks.family import Task, Transition
from troupe_tasks.verilog import Verilog, VerilogParams
from troupe_tasks.verilog.instances import circuit_of

pytest.importorskip("pyosys", reason="needs yosys: pip install 'troupe[verilog]'")

TEXT = json.dumps(
    {"kind": "counter", "params": {"modulo": 13, "step": 1, "is_up": True, "first": 0}}
)
CIRCUIT = circuit_of(TEXT)
TASK = Task("verilog/train/0", "train", 0, TEXT.encode())
FAMILY = Verilog(VerilogParams())
ENV = FAMILY.environment_in(ProcessSandbox())

H = CIRCUIT.header.replace("output [3:0] q", "output reg [3:0] q")
NEXT = "q <= rst ? 0 : en ? (q == 12 ? 0 : q + 1) : q"
GOOD = f"{H} always @(posedge clk) {NEXT};\nendmodule\n"
CHEATS = {
    "finish early": f"{H} initial $finish;\n always @* q = 0;\nendmodule\n",
    "prints the verdict": f'{H} initial begin $display("Mismatches: 0 in 100 samples"); '
    '$display("Your Design Passed"); $finish; end\n always @* q = 0;\nendmodule\n',
    "reads the reference": f"{H} always @* q = tb.q_ref;\nendmodule\n",
    "resets the error counter": f"{H} always @(posedge clk) begin q <= 0; tb.errors = 0; end\n"
    "endmodule\n",
    "forces the compare": f"{H} initial force tb.mismatch = 0;\n always @* q = 0;\nendmodule\n",
    "instantiates RefModule": f"{H} wire [3:0] w; RefModule r(.clk(clk),.rst(rst),.en(en),.q(w)); "
    "always @* q = w;\nendmodule\n",
    "defines RefModule": f"{H} always @(posedge clk) q <= 0;\nendmodule\n"
    "module RefModule(input clk, output q); assign q = 0;\nendmodule\n",
    "x output": f"{H} always @* q = 4'bxxxx;\nendmodule\n",
    "z output": f"{H} always @* q = 4'bzzzz;\nendmodule\n",
    "runs a shell": f'{H} initial $system("true");\n always @* q = 0;\nendmodule\n',
    "writes a file": f'{H} integer f; initial begin f = $fopen("w.out","w"); end\n'
    " always @* q = 0;\nendmodule\n",
    "includes a file": f'{H} `include "/etc/passwd"\n always @* q = 0;\nendmodule\n',
    "zero-time loop": f"{H} always begin q = 0; end\nendmodule\n",
    "delay": f"{H} always @(posedge clk) begin #1 {NEXT}; end\nendmodule\n",
    "macro": f"{H} `define en 1\n always @(posedge clk) q <= `en;\nendmodule\n",
    "generate bomb": f"{H} genvar i; generate for (i=0;i<4000000;i=i+1) begin:g "
    "wire [63:0] w = i; end endgenerate always @* q=0;\nendmodule\n",
    "huge memory": f"{H} reg [4095:0] m [0:16777215]; always @(posedge clk) begin m[q] <= en; "
    "q <= m[q]; end\nendmodule\n",
}
WRONG = {
    "no reset, starts at zero": f"{H} initial q = 0;\n always @(posedge clk) "
    "if (en) q <= (q == 12) ? 0 : q + 1;\nendmodule\n",
    "asynchronous reset": f"{H} always @(posedge clk or posedge rst) if (rst) q <= 0; else if (en) "
    "q <= (q == 12) ? 0 : q + 1;\nendmodule\n",
    "falling edge": GOOD.replace("posedge", "negedge"),
    "clock as data": f"{H} always @* q = {{4{{clk}}}};\nendmodule\n",
    "gated clock": f"{H} wire g = clk & (en | rst);\n always @(posedge g) "
    "q <= rst ? 0 : (q == 12) ? 0 : q + 1;\nendmodule\n",
    "latch": f"{H} always @* if (en) q = 3;\nendmodule\n",
    "loop of gates": f"{H} wire [3:0] w; assign w = w + en; always @* q = w;\nendmodule\n",
    "other ports": GOOD.replace("input en", "input [1:0] en"),
    "one more port": GOOD.replace("input en", "input en, input hint"),
    "escaped cell": f"{H} \\$_DFF_P_ r(.C(clk), .D(en), .Q(q[0]));\nendmodule\n",
    "attribute": GOOD.replace(NEXT, f"(* full_case *) {NEXT}"),
    "no module": "Your Design Passed",
    "empty": "",
}


def step(text: str) -> Transition:
    return ENV.step(ENV.reset(TASK), "designer", text)


def test_right_design_then_is_paid_in_full() -> None:
    done = step(GOOD)
    assert (done.team_reward, done.success, done.done) == (1.0, True, True)


@pytest.mark.parametrize("name", [*CHEATS, *WRONG])
def test_cheat_then_is_no_success_and_its_message_names_no_file(name: str) -> None:
    done = step({**CHEATS, **WRONG}[name])
    assert not done.success
    assert done.team_reward <= 0.03 or name in ("asynchronous reset", "gated clock")
    prompt = json.dumps([m.content for m in ENV.observe(done.state, "designer")])
    assert not any(word in prompt for word in ("root:", "design.sv", "ERROR", "/tmp", "pyosys"))


@pytest.mark.parametrize("name", CHEATS)
def test_sixteen_cheats_and_the_delay_then_are_paid_nothing(name: str) -> None:
    assert step(CHEATS[name]).team_reward == 0.0


def test_trojan_after_many_cycles_then_is_refuted_by_the_proof() -> None:
    """Right in all vectors but wrong in a state that only a long run without reset reaches."""
    trojan = (
        f"{H} reg [7:0] n;\n always @(posedge clk) begin n <= rst ? 0 : n + 1; "
        f"if (n == 200) q <= 5; else {NEXT}; end\nendmodule\n"
    )
    done = step(trojan)
    assert not done.success
    assert done.team_reward == pytest.approx(0.3)


def test_best_share_then_is_paid_once() -> None:
    half = GOOD.replace("q == 12", "q == 11")
    first = step(half)
    assert 0.0 < first.team_reward < 0.3
    again = ENV.step(first.state, "designer", half)
    assert again.team_reward == 0.0
    assert ENV.step(again.state, "designer", GOOD).team_reward == 1.0 - first.team_reward
