"""Judges test scripts (``assert candidate(...) == ...``) without showing them to the candidate.

The script and the judged program never share a run. The script runs with a ``candidate`` that
answers from a table and tells which calls it lacks; the program answers those calls in a run of
its own; then the script runs again. Most scripts need one round.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troupe_tasks.code.judge import Budget, Case, Job, Judge, Ran
from troupe_tasks.code.problem import Problem, ProgramLimits

MAX_ROUNDS = 6
MAX_CALLS = 256
"""Calls that one script may make."""
SCRIPT_LIMITS = ProgramLimits()
OUTPUT_BYTES = 256 * 1024

_Call = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a script passed, and the last thing that the program did for it."""

    passed: bool
    ran: Ran


def grade_script(judge: Judge, problem: Problem, job: Job, script: str, budget: Budget) -> Verdict:
    """The verdict of ``script`` on the program in ``job``; its own runs and the program's calls
    spend ``budget``."""
    answers: dict[str, tuple[_Call, Mapping[str, Any]]] = {}
    last: Ran | None = None
    own = Job("script", _script(problem, script), problem.entry_point)
    for _ in range(MAX_ROUNDS):
        case = Case(0, fields={"known": [list(pair) for pair in answers.values()]})
        [ran] = judge.run([own], [case], SCRIPT_LIMITS, OUTPUT_BYTES, budget)
        calls: list[_Call] = ran.report.get("asked") or []
        if not calls or len(answers) + len(calls) > MAX_CALLS:
            passed = not calls and ran.report.get("passed") is True
            return Verdict(passed, last or ran)
        cases = [Case(0, fields=dict(call)) for call in calls]
        for call, last in zip(
            calls, judge.run([job], cases, problem.limits, OUTPUT_BYTES, budget), strict=True
        ):
            answers[json.dumps(call, sort_keys=True)] = (call, _answer_of(last))
    return Verdict(False, Ran("error", error="the test needs too many calls"))


def _answer_of(ran: Ran) -> Mapping[str, Any]:
    """A value, the name of the exception, or nothing: then the script ends there, failed."""
    if ran.has_value:
        return {"value": ran.report["value"]}
    return {"raised": ran.error.partition(":")[0]} if ran.status == "error" else {}


def _script(problem: Problem, script: str) -> str:
    return f"{problem.prelude}\n\n{script}" if problem.prelude else script
