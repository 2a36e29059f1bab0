"""Running untrusted programs: the contract that tasks use, and how an implementation is found."""

from troupe.sandbox.sandbox import Execution, Limits, Program, Sandbox

__all__ = ["Execution", "Limits", "Program", "Sandbox"]
