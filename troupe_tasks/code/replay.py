"""Judges test scripts (``assert candidate(...) == ...``) without showing them to the candidate.

The script and the judged program never share a run. The script runs with a ``candidate`` that
answers from a table and tells which calls it lacks; the program answers those calls in a run of
its own; then the script runs again. Most scripts need one round.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from troupe_tasks.code.judge import Case, Job, Judge, Ran
from troupe_tasks.code.problem import Problem, ProgramLimits

MAX_ROUNDS = 6
MAX_CALLS = 256
"""Calls that one script may make."""
SCRIPT_LIMITS = ProgramLimits()
OUTPUT_BYTES = 256 * 1024

_Call = Mapping[str, Any]
_Answers = dict[str, tuple[_Call, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a script passed, and the last thing that the program did for it."""

    passed: bool
    ran: Ran


def grade_scripts(
    judge: Judge, problem: Problem, job: Job, scripts: Sequence[str]
) -> list[Verdict]:
    """The verdict of each script on the program in ``job``."""
    answers: list[_Answers] = [{} for _ in scripts]
    verdicts: dict[int, Verdict] = {}
    last: dict[int, Ran] = {}
    for _ in range(MAX_ROUNDS):
        open_ones = [n for n in range(len(scripts)) if n not in verdicts]
        if not open_ones:
            break
        calls = _missing_calls(judge, problem, scripts, answers, open_ones, verdicts, last)
        _answer(judge, problem, job, answers, calls, last)
    never = Ran("error", error="the test needs too many calls")
    return [verdicts.get(n, Verdict(False, never)) for n in range(len(scripts))]


def _missing_calls(
    judge: Judge,
    problem: Problem,
    scripts: Sequence[str],
    answers: Sequence[_Answers],
    open_ones: Sequence[int],
    verdicts: dict[int, Verdict],
    last: Mapping[int, Ran],
) -> dict[int, list[_Call]]:
    """The calls whose answers the open scripts lack; a script that lacks none gets its verdict."""
    jobs = [Job("script", _script(problem, scripts[n]), problem.entry_point) for n in open_ones]
    cases = [
        Case(place, fields={"known": [list(pair) for pair in answers[n].values()]})
        for place, n in enumerate(open_ones)
    ]
    calls_of: dict[int, list[_Call]] = {}
    runs = judge.run(jobs, cases, SCRIPT_LIMITS, OUTPUT_BYTES)
    for n, ran in zip(open_ones, runs, strict=True):
        calls = ran.report.get("asked") or []
        if calls and len(answers[n]) + len(calls) <= MAX_CALLS:
            calls_of[n] = calls
        else:
            passed = not calls and ran.report.get("passed") is True
            verdicts[n] = Verdict(passed, last.get(n, ran))
    return calls_of


def _answer(
    judge: Judge,
    problem: Problem,
    job: Job,
    answers: Sequence[_Answers],
    calls_of: Mapping[int, list[_Call]],
    last: dict[int, Ran],
) -> None:
    """Run the program on the missing calls and record its answers."""
    calls = [(n, call) for n, mine in calls_of.items() for call in mine]
    cases = [Case(0, fields=dict(call)) for _, call in calls]
    runs = judge.run([job], cases, problem.limits, OUTPUT_BYTES)
    for (n, call), ran in zip(calls, runs, strict=True):
        answers[n][json.dumps(call, sort_keys=True)] = (call, _answer_of(ran))
        last[n] = ran


def _answer_of(ran: Ran) -> Mapping[str, Any]:
    """A value, the name of the exception, or nothing: then the script ends there, failed."""
    if ran.has_value:
        return {"value": ran.report["value"]}
    return {"raised": ran.error.partition(":")[0]} if ran.status == "error" else {}


def _script(problem: Problem, script: str) -> str:
    return f"{problem.prelude}\n\n{script}" if problem.prelude else script
