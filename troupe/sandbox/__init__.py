"""Runs untrusted programs: the contract for tasks, and the lookup of implementations."""

from troupe.sandbox.sandbox import (
    CommandSandbox,
    Execution,
    Limits,
    Program,
    Sandbox,
    SandboxCommand,
    SandboxSession,
)

__all__ = [
    "CommandSandbox",
    "Execution",
    "Limits",
    "Program",
    "Sandbox",
    "SandboxCommand",
    "SandboxSession",
]
