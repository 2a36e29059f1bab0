"""The time that programs get: each by itself, whoever is judged beside it."""

from code_world import DOUBLE, ProcessSandbox

from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.proposals import judge_tests

ENDLESS = "def double(values):\n    while True: pass\n"


class _Cut(ProcessSandbox):
    """Ends an endless program at its CPU limit without waiting for it."""

    def run(self, program: Program, limits: Limits) -> Execution:
        if "while True" in program.source:
            return Execution("", "", -24, "cpu_time", limits.cpu_time_s, 0)
        return super().run(program, limits)


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


def test_judge_tests_when_wrong_programs_change_places_then_as_many_are_caught() -> None:
    wrong = (ENDLESS, *DOUBLE.wrong_programs, "def double(values):\n    return values\n")
    pairs = [("([3],)", "[6]"), ("([5],)", "[10]")]
    shares = {
        judge_tests(
            Grader(Judge(_Cut())), DOUBLE.model_copy(update={"wrong_programs": order}), pairs
        ).caught_share
        for order in (wrong, wrong[::-1])
    }
    assert shares == {2 / 3}
