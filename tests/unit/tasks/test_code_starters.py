"""Functions of LiveCodeBench and APPS: programs that complete the starter code as published."""

import json
from typing import Any

import pytest
from code_world import ProcessSandbox

from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.problem import Problem
from troupe_tasks.datasets import apps, livecodebench

HEAD = "class Solution:\n    def add(self, a: int, b: List[int]) -> int:\n"
BODY = """        assert pow(2, 3, 5) == 3
        return a + sum(accumulate(b)) + bisect.bisect(b, a) + Counter(b)[a]
"""
CASES = [((0, [1]), 1), ((1, [2]), 3)]
TESTS = [
    {
        "input": "\n".join(json.dumps(part) for part in given),
        "output": json.dumps(result),
        "testtype": "functional",
    }
    for given, result in CASES
]
LIVECODEBENCH = {
    "question_content": "Add the numbers.",
    "question_id": "1",
    "starter_code": HEAD,
    "public_test_cases": json.dumps(TESTS[:1]),
    "private_test_cases": json.dumps(TESTS[1:]),
    "metadata": json.dumps({"func_name": "add"}),
}
APPS = {
    "problem_id": 1,
    "question": "Add the numbers.",
    "starter_code": HEAD,
    "input_output": json.dumps(
        {
            "fn_name": "add",
            "inputs": [given for given, _ in CASES],
            "outputs": [[result] for _, result in CASES],
        }
    ),
}


FUTURE = "# typed\nfrom __future__ import annotations\n\n"


@pytest.mark.parametrize("first", ["", FUTURE])
@pytest.mark.parametrize(
    ("convert", "row"), [(livecodebench.convert, LIVECODEBENCH), (apps.convert, APPS)]
)
def test_program_when_it_completes_the_published_starter_code_then_its_names_are_imported(
    convert: Any, row: dict[str, Any], first: str
) -> None:
    problem, program = Problem.model_validate(convert(row)), first + HEAD + BODY
    [graded] = Grader(Judge(ProcessSandbox())).grade(problem, program, problem.hidden_tests)
    assert graded.passed, graded.ran.error
