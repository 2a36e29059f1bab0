"""Runs programs on inputs in a sandbox, and reads what they did as data.

Owns the protocol with ``guest.py``. Expected outputs never leave this process; see ``grade.py``.
Whatever a program does is a result; only the sandbox itself raises.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from troupe.sandbox.sandbox import Execution, Limits, Program, Sandbox
from troupe_tasks.code.problem import ProgramLimits
from troupe_tasks.code.values import UnreadableError, Value, decode

Status = Literal[
    "ok", "exit", "signal", "time", "output", "syntax", "error", "value", "skipped", "lost"
]
_STATUSES = frozenset(
    ("ok", "exit", "signal", "time", "output", "syntax", "error", "value", "skipped")
)

MAX_CASES_A_RUN = 16
MAX_LATE = 2
_FRAME_BYTES = 4096
_GUEST_BYTES = 64 * 1024 * 1024


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

    ``value`` is the result of a call when ``has_value``. ``lost`` means that the program ended
    the run before its case was reported: its own doing, as the sandbox was well.
    """

    status: Status
    output: str = ""
    error: str = ""
    value: Value = None
    has_value: bool = False
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])


LOST = Ran("lost", error="the program ended the whole run")


class Judge:
    """Tries programs in ``sandbox``. ``budget_s`` bounds the wall time of one ``run``: cases that
    it does not reach are skipped, which counts as failed, so that a sleeping program costs little;
    so are those after ``max_late`` late ones.
    """

    def __init__(self, sandbox: Sandbox, budget_s: float = 10.0, max_late: int = MAX_LATE) -> None:
        self._sandbox = sandbox
        self._budget_s = budget_s
        self._max_late = max_late

    def run(
        self, jobs: Sequence[Job], cases: Sequence[Case], limits: ProgramLimits, output_bytes: int
    ) -> list[Ran]:
        """What each case did, in order. ``output_bytes`` caps the output of one case.

        Raises TroupeError only when the sandbox failed.
        """
        ran: list[Ran] = []
        num_late, left_s = 0, self._budget_s
        for start in range(0, len(cases), MAX_CASES_A_RUN):
            part = cases[start : start + MAX_CASES_A_RUN]
            if num_late >= self._max_late or left_s <= 0:
                ran += [Ran("skipped")] * len(part)
                continue
            document: dict[str, Any] = {
                "programs": [{"kind": j.kind, "source": j.source, "entry": j.entry} for j in jobs],
                "cases": [{"program": c.job, "input": c.input, **c.fields} for c in part],
                "cpu_s": limits.cpu_time_s,
                "wall_s": limits.wall_time_s,
                "memory_bytes": limits.memory_bytes,
                "output_bytes": output_bytes,
                "stop_after": self._max_late - num_late,
                "budget_s": left_s,
            }
            execution = self._execute(document, limits, left_s)
            left_s -= execution.wall_time_s
            reports = _read(execution.stdout, _nonce(document), len(part))
            num_late += sum(report.status == "time" for report in reports)
            ran += reports
        return ran

    def _execute(
        self, document: Mapping[str, Any], limits: ProgramLimits, left_s: float
    ) -> Execution:
        """One run of the guest, with room for every case to use its own limits."""
        num_cases = len(document["cases"])
        text = json.dumps({"nonce": _nonce(document), **document})
        return self._sandbox.run(
            Program(guest_source(), stdin=text),
            Limits(
                wall_time_s=min(limits.wall_time_s * num_cases, left_s + limits.wall_time_s) + 2.0,
                cpu_time_s=limits.cpu_time_s * num_cases + 2.0,
                memory_bytes=limits.memory_bytes + _GUEST_BYTES,
                output_bytes=num_cases * (2 * document["output_bytes"] + _FRAME_BYTES),
            ),
        )


@cache
def guest_source() -> str:
    """The text of ``guest.py``."""
    return Path(__file__).with_name("guest.py").read_text("utf-8")


def _nonce(document: Mapping[str, Any]) -> str:
    """Marks the guest's lines among what programs print; equal runs have equal nonces.

    It is no secret that protects anything: a forged line only reports an output.
    """
    return hashlib.blake2b(json.dumps(document).encode(), digest_size=12).hexdigest()


def _read(stdout: str, nonce: str, num_cases: int) -> list[Ran]:
    ran: dict[int, Ran] = {}
    for line in stdout.splitlines():
        if not line.startswith(nonce + " "):
            continue
        try:
            report = json.loads(line[len(nonce) + 1 :])
            number, case = report["case"], _ran(report)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(number, int) and 0 <= number < num_cases:
            ran.setdefault(number, case)
    return [ran.get(number, LOST) for number in range(num_cases)]


def _ran(report: Mapping[str, Any]) -> Ran:
    status = report["status"]
    if status not in _STATUSES:
        return LOST
    output, error = str(report.get("output", "")), str(report.get("error", ""))
    if "value" not in report:
        return Ran(status, output, error, report=report)
    try:
        value = decode(report["value"])
    except UnreadableError as problem:
        return Ran("value", output, str(problem))
    return Ran(status, output, error, value, has_value=True, report=report)
