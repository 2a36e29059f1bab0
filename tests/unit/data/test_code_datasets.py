"""Readers of the published code data sets: rows in their published form, and what is refused."""

import base64
import json
import pickle
import zlib
from typing import Any

import pytest

from troupe.data.dataset import RefusedRowError
from troupe.data.registry import find_dataset
from troupe_tasks.code.problem import Problem
from troupe_tasks.datasets import (
    apps,
    code_contests,
    coophumaneval,
    humaneval,
    livecodebench,
    mbpp,
)

NAMES = ("apps", "code_contests", "livecodebench", "mbpp", "humaneval", "coophumaneval")


def _refusal(convert: Any, row: dict[str, Any]) -> str:
    with pytest.raises(RefusedRowError) as caught:
        convert(row)
    return caught.value.reason


APPS_STDIN = {
    "problem_id": 7,
    "question": "Add two numbers.",
    "solutions": json.dumps(["a, b = map(int, input().split())\nprint(a + b)\n"]),
    "input_output": json.dumps(
        {"inputs": ["1 2\n", ["3 4", ""], "1 2\n"], "outputs": ["3\n", ["7"], "3\n"]}
    ),
    "difficulty": "interview",
    "url": "https://example.org/7",
    "starter_code": "",
}
APPS_CALL = {
    **APPS_STDIN,
    "problem_id": 8,
    "input_output": json.dumps(
        {"fn_name": "add", "inputs": [[1, 2], [3, [4]]], "outputs": [[3], [[3, 4]]]}
    ),
    "starter_code": "class Solution:\n    def add(self, a, b):\n",
}


def test_apps_when_on_standard_input_then_the_first_test_is_shown_and_the_rest_hidden() -> None:
    problem = Problem.model_validate(apps.convert(APPS_STDIN))
    assert (problem.id, problem.kind, problem.difficulty) == ("apps/7", "stdin", "interview")
    assert [t.input for t in problem.public_tests] == ["1 2\n"]
    assert [(t.input, t.output) for t in problem.hidden_tests] == [("3 4\n\n", "7\n")]
    assert len(problem.references) == 1


def test_apps_when_a_function_then_results_in_a_list_of_one_are_unwrapped() -> None:
    problem = Problem.model_validate(apps.convert(APPS_CALL))
    assert (problem.kind, problem.entry_point) == ("call", "Solution.add")
    assert [t.input for t in problem.hidden_tests] == ["(3, [4])"]
    assert problem.hidden_tests[0].output == "[3, 4]"
    assert problem.hidden_tests[0].alternatives == ("[[3, 4]]",)
    assert problem.checker.tuples_as_lists


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_output": "{"}, "input_output_is_no_json"),
        ({"input_output": ""}, "input_output_is_no_json"),
        ({"input_output": None}, "no_input_output"),
        ({"input_output": json.dumps({"inputs": ["1"], "outputs": ["1"]})}, "too_few_tests"),
        (
            {"input_output": json.dumps({"inputs": ["1", "1"], "outputs": ["2", "2"]})},
            "no_hidden_test",
        ),
        ({"question": ""}, "no_question"),
    ],
)
def test_apps_when_a_row_is_unusable_then_says_why(change: dict[str, Any], reason: str) -> None:
    assert _refusal(apps.convert, {**APPS_STDIN, **change}) == reason


CONTEST = {
    "name": "1_A. Sum",
    "description": "Add two numbers.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": ["5 5\n", "1 2\n"], "output": ["10\n", "3\n"]},
    "generated_tests": {"input": ["6 6\n"], "output": ["12\n"]},
    "solutions": {"language": [2, 3, 1], "solution": ["int main", "print(1)", "print 1"]},
    "incorrect_solutions": {"language": [3, 4], "solution": ["print(2)", "class A"]},
    "time_limit": {"seconds": 1, "nanos": 500000000},
    "memory_limit_bytes": 64000000,
    "cf_rating": 800,
    "input_file": "",
    "output_file": "",
}


def test_code_contests_then_keeps_python_3_programs_and_wrong_ones() -> None:
    problem = Problem.model_validate(code_contests.convert(CONTEST))
    assert problem.references == ("print(1)",)
    assert problem.wrong_programs == ("print(2)",)
    assert [t.input for t in problem.hidden_tests] == ["5 5\n", "6 6\n"]
    assert problem.limits.cpu_time_s == 4.5
    assert problem.checker.kind == "float"


def test_code_contests_when_a_problem_reads_a_file_then_is_refused() -> None:
    row = {**CONTEST, "input_file": "in.txt"}
    assert _refusal(code_contests.convert, row) == "reads_a_file"
    none = {**CONTEST, "private_tests": {"input": [], "output": []}, "generated_tests": None}
    assert _refusal(code_contests.convert, none) == "no_hidden_test"


def _packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


LCB = {
    "question_title": "Sum",
    "question_content": "Add two numbers.",
    "platform": "atcoder",
    "question_id": "abc001_a",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}]),
    "private_test_cases": _packed([{"input": "5 5", "output": "10", "testtype": "stdin"}]),
    "metadata": "{}",
}
LCB_CALL = {
    **LCB,
    "starter_code": "class Solution:\n    def add(self, a: int, b: list) -> int:\n        ",
    "public_test_cases": json.dumps([{"input": "1\n[2]", "output": "3", "testtype": "functional"}]),
    "private_test_cases": json.dumps(
        [{"input": "5\n[true, null]", "output": '["x"]', "testtype": "functional"}]
    ),
    "metadata": json.dumps({"func_name": "add"}),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_livecodebench_when_private_tests_are_a_pickled_string_then_reads_without_unpickling(
    protocol: int,
) -> None:
    tests = json.dumps([{"input": "5 5" * 50, "output": "10", "testtype": "stdin"}])
    packed = base64.b64encode(zlib.compress(pickle.dumps(tests, protocol))).decode()
    problem = Problem.model_validate(livecodebench.convert({**LCB, "private_test_cases": packed}))
    assert problem.hidden_tests[0].output == "10"


class _Harmful:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize("value", [_Harmful(), ["a"], b"bytes", ("x", "y"), 7, None])
def test_livecodebench_when_the_pickle_is_no_bare_string_then_is_refused_and_never_run(
    value: object,
) -> None:
    packed = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
    row = {**LCB, "private_test_cases": packed}
    assert _refusal(livecodebench.convert, row) == "private_tests_are_no_plain_string"


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        ("%%%", "private_tests_unreadable"),
        (base64.b64encode(b"not zlib").decode(), "private_tests_unreadable"),
        (base64.b64encode(zlib.compress(b"\xff")).decode(), "private_tests_unreadable"),
        (base64.b64encode(zlib.compress(b"x" * 100)[:-6]).decode(), "private_tests_too_large"),
        ("[]", "no_hidden_test"),
        ("{}", "tests_are_no_list"),
    ],
)
def test_livecodebench_when_private_tests_are_broken_then_says_why(
    packed: str, reason: str
) -> None:
    assert _refusal(livecodebench.convert, {**LCB, "private_test_cases": packed}) == reason


def test_livecodebench_when_functional_then_lines_are_json_arguments_of_a_method() -> None:
    problem = Problem.model_validate(livecodebench.convert(LCB_CALL))
    assert problem.entry_point == "Solution.add"
    assert problem.public_tests[0].input == "(1, [2])"
    assert problem.hidden_tests[0].input == "(5, [True, None])"
    assert problem.hidden_tests[0].output == "['x']"
    assert _refusal(livecodebench.convert, {**LCB_CALL, "metadata": "{}"}) == "no_function_name"


MBPP = {
    "task_id": 11,
    "prompt": "Write a function to double a number.",
    "code": "def double(x):\r\n    return 2 * x",
    "test_imports": ["import math"],
    "test_list": [
        "assert double(1) == 2",
        "assert double(2) == 4",
        "assert math.isclose(double(0.5), 1.0)",
    ],
}


def test_mbpp_then_plain_asserts_are_calls_and_others_scripts() -> None:
    problem = Problem.model_validate(mbpp.convert(MBPP))
    assert (problem.entry_point, problem.statement) == ("double", MBPP["prompt"])
    assert [t.input for t in problem.public_tests] == ["(1,)"]
    plain, script = problem.hidden_tests
    assert (plain.input, plain.output, plain.script) == ("(2,)", "4", None)
    assert script.script == "import math\nassert math.isclose(candidate(0.5), 1.0)"
    assert "\r" not in problem.references[0]


def test_mbpp_when_the_full_format_then_text_and_setup_are_read() -> None:
    row = {
        "task_id": 12,
        "text": "Double it.",
        "code": "def double(x):\n    return 2 * x",
        "test_list": ["assert double(1) == 2", "assert double(N) == 6"],
        "test_setup_code": "N = 3",
        "challenge_test_list": ["assert double(7) == 14"],
    }
    problem = Problem.model_validate(mbpp.convert(row))
    assert problem.hidden_tests[0].script == "N = 3\nassert candidate(N) == 6"
    assert problem.hidden_tests[1].input == "(7,)"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"test_list": []}, "no_test_list"),
        ({"test_list": ["assert double(1) == 2"]}, "no_hidden_test"),
        ({"code": "x = 1"}, "no_tested_function"),
        ({"code": "def ("}, "code_is_no_python"),
    ],
)
def test_mbpp_when_a_row_is_unusable_then_says_why(change: dict[str, Any], reason: str) -> None:
    assert _refusal(mbpp.convert, {**MBPP, **change}) == reason


HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'import math\n\n\ndef near(x: float) -> int:\n    """ Nearest number.\n'
    '    >>> near(1.2)\n    1\n    """\n',
    "canonical_solution": "    return math.floor(x + 0.5)\n",
    "test": "\n\nMETADATA = {'author': 'x'}\n\n\ndef check(candidate):\n"
    "    assert candidate(1.2) == 1\n"
    "    assert candidate(2.5) == 3, 'half'\n"
    "    for n in range(3):\n        assert candidate(n) == n\n"
    "    base = 4.0\n"
    "    assert abs(candidate(base) - 4) < 1e-6\n"
    "    assert True\n",
    "entry_point": "near",
}


def test_humaneval_then_each_assert_is_a_hidden_test_of_its_own() -> None:
    problem = Problem.model_validate(humaneval.convert(HUMANEVAL))
    assert problem.id == "humaneval/HumanEval/0"
    assert problem.prelude == "import math"
    assert problem.references[0].endswith("return math.floor(x + 0.5)\n")
    plain = [t for t in problem.hidden_tests if t.script is None]
    assert [(t.input, t.output) for t in plain] == [("(1.2,)", "1"), ("(2.5,)", "3")]
    loop, near = (t.script or "" for t in problem.hidden_tests if t.script is not None)
    assert loop.startswith("for n in range(3):")
    assert near == "base = 4.0\nassert abs(candidate(base) - 4) < 1e-06"
    assert "METADATA" not in loop


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"test": "def f(): pass"}, "no_check_function"),
        ({"test": "def check(candidate):\n    pass"}, "no_tests"),
        ({"test": "def check("}, "test_is_no_python"),
        ({"prompt": ""}, "no_prompt"),
        ({"prompt": "not python at all"}, "prompt_is_no_function_head"),
    ],
)
def test_humaneval_when_a_row_is_unusable_then_says_why(
    change: dict[str, Any], reason: str
) -> None:
    assert _refusal(humaneval.convert, {**HUMANEVAL, **change}) == reason


def test_coophumaneval_then_has_no_reference_and_its_own_name() -> None:
    row = {key: HUMANEVAL[key] for key in ("prompt", "test", "entry_point")}
    problem = Problem.model_validate(coophumaneval.convert({**row, "task_id": "CoopHumanEval/3"}))
    assert problem.id == "coophumaneval/CoopHumanEval/3"
    assert problem.references == ()
    assert problem.source == "coophumaneval"


@pytest.mark.parametrize("name", NAMES)
def test_dataset_when_looked_up_then_is_registered_with_its_terms(name: str) -> None:
    dataset = find_dataset(name)
    assert (dataset.task, dataset.schema) == ("code", Problem)
    assert dataset.licence
    assert dataset.citation
    assert dataset.format_source.startswith("https://")
