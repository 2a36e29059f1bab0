"""The ClassEval reader: unit tests become scripts that are replayed on the program's class."""

from typing import Any

import pytest
from code_world import ProcessSandbox

from troupe.data.dataset import RefusedRowError
from troupe.data.registry import find_dataset
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.problem import Problem
from troupe_tasks.datasets import classeval

SOLUTION = """
class Counter:
    def __init__(self, start=0):
        self.value = start
        self.log = []

    def add(self, n):
        if n < 0:
            raise ValueError('negative')
        self.value += n
        self.log.append(n)
        return self.value

    @staticmethod
    def double(n):
        return 2 * n
"""
TEST = """
import unittest


class CounterTestAdd(unittest.TestCase):
    def setUp(self):
        self.counter = Counter(10)

    def test_add_1(self):
        self.assertEqual(self.counter.add(5), 15)
        self.assertEqual(self.counter.add(1), 16)

    def test_add_2(self):
        self.counter.add(70007)
        self.assertEqual(self.counter.log, [70007])
        self.assertFalse(self.counter.value == 70016)

    def test_add_negative(self):
        with self.assertRaises(ValueError):
            self.counter.add(-1)


class CounterTestOther(unittest.TestCase):
    def test_double(self):
        self.assertEqual(Counter.double(4), 8)

    def test_value_set(self):
        counter = Counter()
        counter.value = 3
        self.assertEqual(counter.add(1), 4)
"""
ROW: dict[str, Any] = {
    "task_id": "ClassEval_0",
    "skeleton": "class Counter:\n    def add(self, n):\n        ...",
    "test": TEST,
    "solution_code": SOLUTION,
    "import_statement": ["import math"],
    "class_name": "Counter",
}


def _passed(code: str) -> tuple[list[bool], ProcessSandbox]:
    problem, sandbox = Problem.model_validate(classeval.convert(ROW)), ProcessSandbox()
    graded = Grader(Judge(sandbox)).grade(problem, code, problem.hidden_tests)
    return [one.passed for one in graded], sandbox


def test_classeval_then_each_unit_test_is_a_script_and_the_solution_passes_all() -> None:
    problem = Problem.model_validate(classeval.convert(ROW))
    assert problem.id == "classeval/ClassEval_0"
    assert problem.prelude == "import math"
    assert problem.asked.startswith("the class Counter")
    assert len(problem.hidden_tests) == 5
    passed, sandbox = _passed(SOLUTION)
    assert passed == [True] * 5
    for program in sandbox.programs:  # the program never meets what its log must be
        assert not ("self.value += n" in program.stdin and "70016" in program.stdin)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("self.value += n", "self.value -= n", [False, True, True, True, False]),
        ("self.log.append(n)", "pass", [True, False, True, True, True]),
        ("raise ValueError('negative')", "return 0", [True, True, False, True, True]),
        ("return 2 * n", "return n", [True, True, True, False, True]),
    ],
)
def test_classeval_when_a_method_is_wrong_then_its_own_tests_fail(
    old: str, new: str, expected: list[bool]
) -> None:
    assert _passed(SOLUTION.replace(old, new))[0] == expected


@pytest.mark.parametrize(
    "code",
    [
        "",
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nclass Counter: pass",
        "class Counter:\n    def __init__(self, *a): pass\n"
        "    def __getattr__(self, name): return lambda *a: type('Yes', (), "
        "{'__eq__': lambda s, o: True})()\n",
        "import os\nos._exit(0)",
        "def operate_on_object(operations): return 15\nclass Counter: pass",
    ],
)
def test_classeval_when_a_program_cheats_then_no_test_passes(code: str) -> None:
    passed, _ = _passed(code)
    assert passed == [False] * 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"test": ""}, "no_tests"),
        ({"test": "def ("}, "test_is_no_python"),
        ({"solution_code": "x = 1"}, "solution_without_class"),
        ({"skeleton": ""}, "no_skeleton"),
    ],
)
def test_classeval_when_a_row_is_unusable_then_says_why(
    change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RefusedRowError) as caught:
        classeval.convert({**ROW, **change})
    assert caught.value.reason == reason


def test_classeval_when_an_early_file_is_read_then_its_old_names_are_known() -> None:
    row = {**ROW, "sketch": ROW["skeleton"], "imports": ["import os"]}
    del row["skeleton"], row["import_statement"]
    assert Problem.model_validate(classeval.convert(row)).prelude == "import os"
    assert find_dataset("classeval").schema is Problem
