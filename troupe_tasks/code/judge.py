"""Runs programs on inputs in a sandbox, and reads what they did as data.

Each case is a run of its own, so no program meets another case. Owns the protocol with ``guest``.
Expected outputs never leave this process; see ``grade.py``. Whatever a program does is a result;
only the sandbox itself raises.
"""

import hashlib
import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from troupe.sandbox.sandbox import Execution, Limits, Program, Sandbox
from troupe_tasks.code.guest.program import FAILED, NO_PYTHON
from troupe_tasks.code.problem import ProgramLimits
from troupe_tasks.code.values import UnreadableError, Value, decode

Status = Literal["ok", "exit", "signal", "time", "output", "syntax", "error", "value", "skipped"]
_TOLD = frozenset(("ok", "value"))
_FIELDS = ("status", "value", "error", "passed", "asked")

MAX_LATE = 2
JUDGING_S = 12.5
"""Seconds that one judging takes. An action has two at most, and one that outlasts
``limits.env_timeout_s`` (60 s), in which it also waits for a worker, is judged again."""
START_S = 0.01
"""What a run costs beside its wall time; measured: 7 to 9 ms (25 with processes to clean up)."""
_FRAME_BYTES = 4096
_GUEST_BYTES = 64 * 1024 * 1024
_ERROR_CHARS = 600
_MIN_STREAM_BYTES = 256 * 1024
"""A program may print this much to stderr however small its output must be."""
_PARTS = {
    "stdin": ("program",),
    "call": ("program", "values", "call"),
    "script": ("program", "values", "call", "script"),
}
_OWN_LINES = ("from __future__ ", "from troupe_tasks.")


@dataclass(frozen=True, slots=True)
class Job:
    """One program to try. ``entry`` is the function that a ``call`` program must define.

    Example: ``Job("call", "def f(x):\\n    return x + 1", "f")``.
    """

    kind: Literal["stdin", "call", "script"]
    source: str
    entry: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One input of the program at ``job``: text for stdin, else JSON fields for the guest."""

    job: int
    input: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program did with one input.

    ``value`` is the result of a call when ``has_value``; a program that ended its run before it
    could be told has none. ``error`` is one line on why ``status`` is not ``ok``.
    """

    status: Status
    output: str = ""
    error: str = ""
    value: Value = None
    has_value: bool = False
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Budget:
    """What is left for one program: wall time, and runs that may be late."""

    left_s: float
    late_left: int


class Judge:
    """Tries programs in ``sandbox``. Cases that a budget does not reach are skipped, which counts
    as failed, so that a sleeping program costs little; so are those after ``max_late`` late ones.

    ``budget_s`` is the wall time of one judging: no run outlasts it.
    """

    def __init__(
        self, sandbox: Sandbox, budget_s: float = JUDGING_S, max_late: int = MAX_LATE
    ) -> None:
        self._sandbox = sandbox
        self._budget_s = budget_s
        self._max_late = max_late

    def budget(self, judgings: float = 1.0) -> Budget:
        """The time of so many judgings, or of a part of one."""
        return Budget(self._budget_s * judgings, self._max_late)

    def run(
        self,
        jobs: Sequence[Job],
        cases: Sequence[Case],
        limits: ProgramLimits,
        output_bytes: int,
        budget: Budget | None = None,
    ) -> list[Ran]:
        """What each case did, in order. ``output_bytes`` caps the output of one case; ``budget``
        is spent (None: one for this run).

        Raises TroupeError only when the sandbox failed.
        """
        budget = budget or self.budget()
        ran: list[Ran] = []
        for case in cases:
            if budget.late_left <= 0 or budget.left_s <= 0:
                ran.append(Ran("skipped"))
                continue
            job = jobs[case.job]
            nonce = _nonce(job, case)
            execution = self._sandbox.run(
                Program(_source(job, case, nonce, limits), stdin=case.input),
                Limits(
                    wall_time_s=min(limits.wall_time_s, budget.left_s),
                    cpu_time_s=limits.cpu_time_s,
                    memory_bytes=limits.memory_bytes + _GUEST_BYTES,
                    output_bytes=max(2 * output_bytes + _FRAME_BYTES, _MIN_STREAM_BYTES),
                ),
            )
            budget.left_s -= execution.wall_time_s + START_S
            ran.append(_ran(execution, nonce, output_bytes))
            budget.late_left -= ran[-1].status == "time"
        return ran


@cache
def guest_source(kind: str) -> str:
    """The text of the ``guest`` modules that run a program of this kind."""
    folder = Path(__file__).with_name("guest")
    lines = ["from __future__ import annotations"]
    for part in _PARTS[kind]:
        text = (folder / f"{part}.py").read_text("utf-8")
        lines += [line for line in text.splitlines() if not line.startswith(_OWN_LINES)]
    return "\n".join(lines)


def _source(job: Job, case: Case, nonce: str, limits: ProgramLimits) -> str:
    fields = {
        "source": job.source,
        "entry": job.entry,
        "nonce": nonce,
        "memory_bytes": limits.memory_bytes,
        **case.fields,
    }
    guest = guest_source(job.kind)
    return f"{guest}\nimport json\nrun_{job.kind}(json.loads({json.dumps(fields)!r}))\n"


def _nonce(job: Job, case: Case) -> str:
    """Marks the guest's line among what a program prints; equal runs have equal nonces.

    It is no secret that protects anything: a forged line only reports an output.
    """
    text = json.dumps([job.source, case.input, case.fields])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _ran(execution: Execution, nonce: str, output_bytes: int) -> Ran:
    output, told = _split(execution.stdout, nonce)
    status = _status(execution)
    if status == "ok" and len(output.encode(errors="replace")) > output_bytes:
        status = "output"
    output = output[:output_bytes]
    if told and status in ("ok", "exit", "error"):
        return _told(told, output)
    if status == "ok":
        return Ran("ok", output)
    error = _last_line(execution.stderr)
    if execution.limit == "memory":
        error = "it used too much memory"
    return Ran(status, output, error)


def _status(execution: Execution) -> Status:
    if execution.limit in ("wall_time", "cpu_time") or execution.exit_code == -signal.SIGXCPU:
        return "time"
    if execution.limit == "output":
        return "output"
    if execution.exit_code < 0:
        return "signal"
    statuses: dict[int, Status] = {0: "ok", FAILED: "error", NO_PYTHON: "syntax"}
    return statuses.get(execution.exit_code, "exit")


def _split(stdout: str, nonce: str) -> tuple[str, str]:
    """What the program printed, and the guest's line; the line is empty when there is none."""
    before, mark, rest = stdout.partition(f"\n{nonce} ")
    line, _, after = rest.partition("\n")
    return before + after, line if mark else ""


def _told(line: str, output: str) -> Ran:
    """What a run says of itself; it may say anything, so only the shape is checked."""
    try:
        said = json.loads(line)
        report = {name: said[name] for name in _FIELDS if name in said}
        status = report["status"]
        if status not in _TOLD:
            raise ValueError(f"no status {status}")
    except (ValueError, TypeError, KeyError, RecursionError):
        return Ran("value", output, "the result cannot be read")
    error = str(report.get("error", ""))[:_ERROR_CHARS]
    if "value" not in report:
        return Ran(status, output, error, report=report)
    try:
        value = decode(report["value"])
    except UnreadableError as problem:
        return Ran("value", output, str(problem)[:_ERROR_CHARS])
    return Ran(status, output, error, value, has_value=True, report=report)


def _last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:_ERROR_CHARS] if lines else ""
