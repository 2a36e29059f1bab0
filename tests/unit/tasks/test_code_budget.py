"""The time that programs get: each by itself, and all of an action before its deadline."""

from dataclasses import replace
from pathlib import Path

import pytest
from code_world import ADD, DOUBLE, ProcessSandbox

from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe.spec.job import LimitsSpec
from troupe_tasks.code import Code, CodeParams, text
from troupe_tasks.code.best_of import BestOfParams, CodeBestOf
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import JUDGING_S, START_S, Judge
from troupe_tasks.code.problem import Checker, Problem, ProgramLimits, TestCase, write_problems
from troupe_tasks.code.proposals import judge_tests

ENDLESS = "def double(values):\n    while True: pass\n"
NUMBERS = tuple(TestCase(input=f"{n}\n", output=f"{n}\n") for n in range(40))
ECHO = Problem(
    id="echo",
    kind="stdin",
    statement="Print the number.",
    hidden_tests=NUMBERS,
    limits=ProgramLimits(cpu_time_s=6.0, wall_time_s=18.0),
    split="train",
)
CHECK = Checker(kind="program", source="def check(given, expected, output): return True")
SCRIPTS = tuple(
    TestCase(script=f"for n in range({n}, {n + 4}):\n    assert candidate([n]) == [2 * n]")
    for n in range(5)
)


class _Cut(ProcessSandbox):
    """Ends an endless program at its CPU limit without waiting for it."""

    def run(self, program: Program, limits: Limits) -> Execution:
        if "while True" in program.source:
            return Execution("", "", -24, "cpu_time", limits.cpu_time_s, 0)
        return super().run(program, limits)


class _Slow(ProcessSandbox):
    """Says of each run that it took ``run_s``, or all the time that it had."""

    def __init__(self, run_s: float) -> None:
        super().__init__()
        self._run_s, self.taken_s = run_s, 0.0

    def run(self, program: Program, limits: Limits) -> Execution:
        took_s = min(self._run_s, limits.wall_time_s)
        self.taken_s += took_s + START_S
        if self._run_s > limits.wall_time_s:
            self.num_runs += 1
            return Execution("", "", -9, "wall_time", took_s, 0)
        return replace(super().run(program, limits), wall_time_s=took_s)


def test_grade_all_when_one_program_is_endless_then_no_other_is_late() -> None:
    reference = DOUBLE.references[0]
    rows = Grader(Judge(_Cut())).grade_all(
        DOUBLE, [ENDLESS, reference, reference + "\n"], [*DOUBLE.hidden_tests, *DOUBLE.spare_tests]
    )
    assert [[test.ran.status for test in row] for row in rows] == [
        ["time", "time", "skipped"],
        ["ok"] * 3,
        ["ok"] * 3,
    ]
    assert all(test.passed for row in rows[1:] for test in row)


@pytest.mark.parametrize("budget_s", [JUDGING_S, 10.0])
def test_judge_tests_when_wrong_programs_change_places_then_as_many_are_caught(
    budget_s: float,
) -> None:
    wrong = (ENDLESS, *DOUBLE.wrong_programs, "def double(values):\n    return values\n")
    pairs = [("([3],)", "[6]"), ("([5],)", "[10]")]
    shares = {
        judge_tests(
            Grader(Judge(_Cut(), budget_s)),
            DOUBLE.model_copy(update={"wrong_programs": order}),
            pairs,
        ).caught_share
        for order in (wrong, wrong[::-1])
    }
    assert shares == {2 / 3}


def test_grade_when_a_right_program_is_slow_within_its_limits_then_it_passes() -> None:
    graded = Grader(Judge(_Slow(0.6))).grade(ECHO, "print(input())", ECHO.hidden_tests[:20])
    assert all(test.passed for test in graded)


@pytest.mark.parametrize("tests", [NUMBERS[:12], SCRIPTS])
def test_grade_when_time_ends_among_checks_or_scripts_then_the_first_tests_passed(
    tests: tuple[TestCase, ...],
) -> None:
    problem = DOUBLE if tests is SCRIPTS else ECHO.model_copy(update={"checker": CHECK})
    code = DOUBLE.references[0] if tests is SCRIPTS else "print(input())"
    passed = [g.passed for g in Grader(Judge(_Slow(1.5))).grade(problem, code, tests)]
    assert passed == sorted(passed, reverse=True)
    assert 0 < sum(passed) < len(passed)


def test_grade_when_its_budget_is_over_then_a_test_that_began_is_late() -> None:
    judge = Judge(_Slow(7.0), budget_s=10.0)
    graded = Grader(judge).grade(ECHO, "print(input())", ECHO.hidden_tests)
    assert [test.ran.status for test in graded] == ["ok", "time", *["skipped"] * 38]


@pytest.mark.parametrize("run_s", [1.5, 5.0, 17.0])
@pytest.mark.parametrize(
    "problem",
    [
        ECHO.model_copy(update={"checker": CHECK, "public_tests": (TestCase(input="99\n"),)}),
        DOUBLE.model_copy(update={"public_tests": SCRIPTS, "hidden_tests": SCRIPTS}),
    ],
)
def test_step_when_a_program_is_slow_then_its_action_ends_before_the_deadline(
    problem: Problem, run_s: float, tmp_path: Path
) -> None:
    write_problems(tmp_path / "train.jsonl", [problem])
    family, sandbox = Code(CodeParams(data={"train": tmp_path / "train.jsonl"})), _Slow(run_s)
    env = family.environment_in(sandbox)
    code = "print(input())" if problem.kind == "stdin" else DOUBLE.references[0]
    env.step(env.reset(family.taskset().task("train", 0)), "coder", text.program_answer(code))
    _ended_in_time(sandbox)


@pytest.mark.parametrize("checker", [ADD.checker, CHECK])
@pytest.mark.parametrize("run_s", [1.5, 5.0, 17.0])
def test_step_when_a_testers_inputs_are_slow_then_its_action_ends_before_the_deadline(
    checker: Checker, run_s: float, tmp_path: Path
) -> None:
    wrong = tuple(f"{ADD.references[0]}\nprint({n})\n" for n in range(6))
    update = {"checker": checker, "wrong_programs": wrong, "limits": ECHO.limits}
    write_problems(tmp_path / "train.jsonl", [ADD.model_copy(update=update)])
    params = CodeParams(data={"train": tmp_path / "train.jsonl"}, max_tests=12)
    family, sandbox = Code(params), _Slow(run_s)
    env = family.environment_in(sandbox)
    answer = text.tests_answer(ADD, [(f"{n} 1\n", f"{n + 1}\n") for n in range(12)])
    env.step(env.reset(family.taskset().task("train", 0)), "tester", answer)
    _ended_in_time(sandbox)


@pytest.mark.parametrize("budget_s", [JUDGING_S, 10.0])
@pytest.mark.parametrize("run_s", [0.2, 7.0])
def test_step_when_eight_programs_are_slow_then_the_matrix_ends_before_the_deadline(
    run_s: float, budget_s: float, tmp_path: Path
) -> None:
    write_problems(tmp_path / "train.jsonl", [ADD])
    path = tmp_path / "train.jsonl"
    params = BestOfParams(data={"train": path}, programs=8, budget_s=budget_s, max_tests=12)
    family = CodeBestOf(params)
    sandbox = _Slow(run_s)
    env = family.environment_in(sandbox)
    state = env.reset(family.taskset().task("train", 0))
    for n in range(8):
        state = env.step(state, "coder", text.program_answer(f"{ADD.references[0]}# {n}\n")).state
    sandbox.taken_s, sandbox.num_runs = 0.0, 0
    answer = text.tests_answer(ADD, [(f"{n} 1\n", f"{n + 1}\n") for n in range(12)])
    done = env.step(state, "tester", answer)
    _ended_in_time(sandbox)
    if run_s < 1.0:
        assert done.success
        assert sandbox.num_runs == 8 * 12


def _ended_in_time(sandbox: _Slow) -> None:
    assert sandbox.num_runs > 0
    one_start_a_program = 8 * START_S
    assert sandbox.taken_s <= 2 * JUDGING_S + one_start_a_program
    assert LimitsSpec().env_timeout_s >= 4 * JUDGING_S  # two actions wait for one worker
