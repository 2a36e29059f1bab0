"""Gives wrong programs to prepared problems: changes of the reference that fail a hidden test.

Done once, when problems are prepared, never in a step. ``python -m troupe_tasks.code.wrong_programs
--data FILE --out FILE`` also leaves out hidden tests that the reference fails.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random

from troupe import plugins
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.runtime.telemetry.logging import configure_logging
from troupe.sandbox.sandbox import Sandbox
from troupe.seeds import derive_seed
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.mutants import mutants
from troupe_tasks.code.problem import Problem, ProgramLimits, read_problems, write_problems

MAX_WRONG = 6
MAX_TRIED = 48
BUILD_BUDGET_S = 120.0
MUTANT_LIMITS = ProgramLimits(cpu_time_s=1.0, wall_time_s=60.0)
ENOUGH = 16
_COSTLY = ("time", "skipped", "output", "syntax")


def verified(problem: Problem, grader: Grader) -> Problem | None:
    """``problem`` without the hidden tests that its own reference fails; None when none is left."""
    if not problem.references:
        return problem
    graded = grader.grade(problem, problem.references[0], problem.hidden_tests)
    tests = tuple(t for t, g in zip(problem.hidden_tests, graded, strict=True) if g.passed)
    return problem.model_copy(update={"hidden_tests": tests}) if tests else None


def with_wrong_programs(problem: Problem, grader: Grader, *, most: int = MAX_WRONG) -> Problem:
    """``problem`` with up to ``most`` programs that fail a hidden test.

    Its own wrong programs come first, as far as they do fail one, then changed references. Those
    that pass all public tests are preferred, then those that fail few hidden ones: they are
    the hardest to catch. Programs that run late are left out, as they would be slow in each step.
    """
    if not problem.references:
        return problem
    rng = Random(derive_seed(0, "mutants", problem.id))
    tests = [*problem.public_tests, *problem.hidden_tests]
    known_wrong = list(problem.wrong_programs)
    changed = islice(mutants(problem.references[0], rng), MAX_TRIED)
    quick = problem.model_copy(update={"limits": MUTANT_LIMITS})
    by_pattern: dict[tuple[bool, ...], tuple[bool, bool, float, str]] = {}
    for source in (*known_wrong, *changed):
        if len(by_pattern) >= ENOUGH:
            break
        graded = grader.grade(quick, source, tests)
        hidden = graded[len(problem.public_tests) :]
        if any(verdict.ran.status in _COSTLY for verdict in graded) or all(
            verdict.passed for verdict in hidden
        ):
            continue
        failed = sum(not verdict.passed for verdict in hidden) / len(hidden)
        looks_right = all(verdict.passed for verdict in graded[: len(problem.public_tests)])
        pattern = tuple(verdict.passed for verdict in graded)
        by_pattern.setdefault(pattern, (source not in known_wrong, not looks_right, failed, source))
    best = [source for *_, source in sorted(by_pattern.values())[:most]]
    return problem.model_copy(update={"wrong_programs": tuple(best)})


def patient_grader(sandbox: Sandbox) -> Grader:
    """Patient on a busy machine, and quick to give up a program that loops."""
    return Grader(Judge(sandbox, BUILD_BUDGET_S, max_late=1))


def main(arguments: Sequence[str]) -> int:
    """See the module; the exit status."""
    configure_logging("code.wrong_programs", level="warning")
    try:
        _run(arguments)
    except TroupeError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 2 if isinstance(error, InvalidArgumentError) else 1
    return 0


def _run(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="prepared problems")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--sandbox", default="local", help="sandbox by name or module:attr")
    options = parser.parse_args(arguments)
    drafts = read_problems(options.data)
    sandbox: Sandbox = plugins.load(plugins.SANDBOXES, options.sandbox)()
    try:
        grader = patient_grader(sandbox)
        checked = [verified(problem, grader) for problem in drafts]
        problems = [with_wrong_programs(p, grader) for p in checked if p is not None]
    finally:
        sandbox.close()
    write_problems(options.out, problems)
    num_wrong = sum(len(problem.wrong_programs) for problem in problems)
    sys.stdout.write(f"{options.out}: {len(problems)} problems, {num_wrong} wrong programs\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
