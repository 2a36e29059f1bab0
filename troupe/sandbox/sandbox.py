"""The sandbox contract for tasks: run one untrusted program under limits, report what it did.

Owns value types and the protocol only. Never runs anything: the env service owns isolation.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

Limit = Literal["wall_time", "cpu_time", "memory", "pids", "output", "file_size"]
"""Limits that a program can run into."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. Times in seconds, sizes in bytes; all must be positive.

    ``output_bytes`` caps stdout and stderr each: further output is dropped and the program is
    ended. ``file_bytes`` caps everything that it writes to its private scratch folder.
    """

    wall_time_s: float = 5.0
    cpu_time_s: float = 5.0
    memory_bytes: int = 256 * 1024 * 1024
    num_processes: int = 16
    output_bytes: int = 64 * 1024
    file_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """One program: source text, standard input, and files in its working folder.

    ``files`` maps plain relative names to contents. ``language`` is one that the sandbox is
    configured for; "python" always is.

    Example: ``Program("print(int(input()) + 1)", stdin="41\\n")``.
    """

    source: str
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    language: str = "python"


@dataclass(frozen=True, slots=True)
class Execution:
    """What a program did. ``limit`` names the limit that ended it, or None.

    ``exit_code`` is negative for a signal, as in ``subprocess``. Whatever the program did is a
    result; that the sandbox itself failed is a retryable TroupeError, never an Execution.

    Example: ``Execution("42\\n", "", 0, None, 0.006, 9_400_000)``.
    """

    stdout: str
    stderr: str
    exit_code: int
    limit: Limit | None
    wall_time_s: float
    peak_memory_bytes: int

    @property
    def is_ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.exit_code == 0 and self.limit is None


class Sandbox(Protocol):
    """Runs untrusted programs; safe to call from several threads."""

    level: str

    def run(self, program: Program, limits: Limits) -> Execution:
        """Run ``program`` alone in a clean environment, and clean up afterwards.

        Raises OverloadedError when too many wait, UnavailableError when the sandbox itself broke.
        """
        ...

    def close(self) -> None:
        """End all running programs."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    """A Python script that runs for long in a sandbox of its own, such as one that runs a harness.

    ``python`` is an interpreter whose environment it sees, as it sees the folders in ``shown``; it
    starts in an empty working folder with ``stdin`` at its standard input. ``port``: of loopback
    inside, the one address that it can reach.
    """

    python: str
    script: str
    arguments: tuple[str, ...]
    stdin: str
    environment: Mapping[str, str]
    port: int
    shown: tuple[str, ...] = ()


class SandboxSession(Protocol):
    """A command that was started; ``listener`` accepts what it sends to its port."""

    listener: socket.socket

    @property
    def pid(self) -> int:
        """A process that all of the command's descend from."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether the command still runs."""
        ...

    def kill(self) -> None:
        """End it and all that it began, and forget what it wrote."""
        ...


@runtime_checkable
class CommandSandbox(Protocol):
    """A sandbox that also runs long-lived commands."""

    def open(self, command: SandboxCommand, limits: Limits) -> SandboxSession:
        """Start ``command``; its limits hold as a program's do, but for output, which is dropped.

        Raises InvalidArgumentError where this sandbox has no level for it, OverloadedError when too
        many run, UnavailableError when it could not be started.
        """
        ...
