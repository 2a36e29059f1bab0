"""Runs untrusted programs: the contract for tasks, and the lookup of implementations."""

from troupe.sandbox.sandbox import Execution, Limits, Program, Sandbox

__all__ = ["Execution", "Limits", "Program", "Sandbox"]
