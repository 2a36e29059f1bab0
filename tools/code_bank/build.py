"""Builds the code family's own problems from the drafts of this folder.

Outputs come from the reference, wrong programs from changes of it. ``python -m
tools.code_bank.build`` rewrites ``troupe_tasks/code/builtin.jsonl``, from the repository's root.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tools.code_bank import DRAFTS, Draft
from tools.code_bank.draft import Input
from troupe import plugins
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.runtime.telemetry.logging import configure_logging
from troupe.sandbox.sandbox import Sandbox
from troupe.seeds import derive_seed
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.problem import Problem, TestCase, write_problems
from troupe_tasks.code.tasks import BUILTIN
from troupe_tasks.code.wrong_programs import patient_grader, with_wrong_programs

NUM_HIDDEN = 12
NUM_SPARE_DRAWN = 24
MAX_SPARE = 4
MIN_WRONG = 2
MAX_DRAWS = 1000


def build_draft(draft: Draft, sandbox: Sandbox) -> Problem:
    """The finished problem; raises InvalidArgumentError when the draft does not hold water."""
    grader = patient_grader(sandbox)
    shown, hidden, spare = _inputs(draft)
    bare = Problem(
        id=f"troupe/{draft.name}",
        kind=draft.kind,
        statement=draft.statement,
        entry_point=draft.entry_point,
        hidden_tests=(TestCase(input=hidden[0]),),
        references=(draft.reference,),
        wrong_programs=tuple(draft.wrong),
        checker=draft.checker,
        source="troupe",
        difficulty=draft.difficulty,
    )
    cases = _answered(grader, bare, [*shown, *hidden, *spare])
    num_before = len(shown) + len(hidden)
    public, rest = cases[: len(shown)], cases[num_before:]
    whole = bare.model_copy(
        update={"public_tests": public, "hidden_tests": cases[len(shown) : num_before]}
    )
    problem = with_wrong_programs(whole, grader)
    if len(problem.wrong_programs) < MIN_WRONG:
        raise InvalidArgumentError(f"{problem.id}: only {len(problem.wrong_programs)} mutants fail")
    spare_tests = _catching(grader, problem, rest)
    return Problem.model_validate(
        problem.model_copy(update={"spare_tests": spare_tests}).model_dump()
    )


def _inputs(draft: Draft) -> tuple[list[str], list[str], list[str]]:
    """Different inputs for public, hidden and spare tests."""
    shown = [_text(item) for item in draft.shown]
    hidden = [t for t in dict.fromkeys(_text(item) for item in draft.edges) if t not in shown]
    rng = Random(derive_seed(0, "tests", draft.name))
    drawn: dict[str, None] = {}
    for _ in range(MAX_DRAWS):
        text = _text(draft.draw(rng))
        if text not in shown and text not in hidden:
            drawn[text] = None
        if len(hidden) + len(drawn) >= NUM_HIDDEN + NUM_SPARE_DRAWN:
            break
    more = list(drawn)
    num_more = max(0, NUM_HIDDEN - len(hidden))
    return shown, hidden + more[:num_more], more[num_more:]


def _text(item: Input) -> str:
    return item if isinstance(item, str) else repr(item)


def _answered(grader: Grader, problem: Problem, inputs: Sequence[str]) -> tuple[TestCase, ...]:
    ran = grader.outputs(problem, problem.references[0], inputs)
    cases: list[TestCase] = []
    for text, grade in zip(inputs, ran, strict=True):
        if grade.status != "ok" or (problem.kind == "call" and not grade.has_value):
            raise InvalidArgumentError(
                f"{problem.id}: the reference fails on {text!r} ({grade.status}: {grade.error})"
            )
        output = grade.output if problem.kind == "stdin" else repr(grade.value)
        cases.append(TestCase(input=text, output=output))
    graded = grader.grade(problem, problem.references[0], cases)
    if not all(grade.passed for grade in graded):
        raise InvalidArgumentError(f"{problem.id}: the checker refuses the reference itself")
    return tuple(cases)


def _catching(grader: Grader, problem: Problem, tests: Sequence[TestCase]) -> tuple[TestCase, ...]:
    """Few tests that catch as many wrong programs as all of them do, found greedily."""
    graded = grader.grade_all(problem, problem.wrong_programs, tests)
    catches = [
        frozenset(p for p, program in enumerate(graded) if not program[t].passed)
        for t in range(len(tests))
    ]
    chosen: list[int] = []
    caught: frozenset[int] = frozenset()
    for _ in range(min(MAX_SPARE, len(tests))):
        best = max(range(len(tests)), key=lambda t: len(catches[t] - caught))
        if not catches[best] - caught:
            break
        chosen.append(best)
        caught |= catches[best]
    return tuple(tests[t] for t in chosen)


def main(arguments: Sequence[str]) -> int:
    """See the module; the exit status."""
    configure_logging("code_bank.build", level="warning")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILTIN, help="file to write")
    parser.add_argument("--sandbox", default="local", help="sandbox by name or module:attr")
    options = parser.parse_args(arguments)
    sandbox: Sandbox = plugins.load(plugins.SANDBOXES, options.sandbox)()
    try:
        problems = [build_draft(draft, sandbox) for draft in DRAFTS]
    except TroupeError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 2 if isinstance(error, InvalidArgumentError) else 1
    finally:
        sandbox.close()
    write_problems(options.out, problems)
    num_wrong = sum(len(problem.wrong_programs) for problem in problems)
    sys.stdout.write(f"{options.out}: {len(problems)} problems, {num_wrong} wrong programs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
