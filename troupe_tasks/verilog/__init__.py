"""Verilog: a tester writes rows of inputs and outputs, a designer a module, judged as gates."""

from troupe_tasks.verilog.family import Verilog, VerilogParams

__all__ = ["Verilog", "VerilogParams"]
