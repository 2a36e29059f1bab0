"""APPS: problems from programming sites, on standard input or as a function.

Format: https://huggingface.co/datasets/codeparrot/apps (problem_id, question, solutions,
input_output, difficulty, url, starter_code). ``solutions`` and ``input_output`` are JSON text;
``input_output`` holds inputs, outputs and, for functions, fn_name. The published test set is test
here and the published training set is train: nothing is taken from one for the other.
"""

import json
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, record, text
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.published import IMPORTS, MAX_REFERENCES, finished

NUM_SHOWN = 1
"""APPS has no public tests beyond those in the statement; the first test is one of them."""


def convert(row: Row) -> dict[str, Any]:
    """A stdin problem, or a call problem when there is an fn_name."""
    tests = record(_json(row, "input_output"), "no_input_output")
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise RefusedRowError("no_tests")
    if len(inputs) != len(outputs) or len(inputs) <= NUM_SHOWN:
        raise RefusedRowError("too_few_tests")
    name = tests.get("fn_name")
    starter = str(row.get("starter_code") or "")
    make = _call_case if isinstance(name, str) else _stdin_case
    cases = [make(test_input, out) for test_input, out in zip(inputs, outputs, strict=True)]
    entry = f"Solution.{name}" if "class Solution" in starter else str(name or "")
    return finished(
        {
            "id": f"apps/{text(row, 'problem_id', 'id')}",
            "kind": "call" if name else "stdin",
            "entry_point": entry,
            "statement": text(row, "question"),
            "starter_code": starter,
            "prelude": IMPORTS if name else "",
            "public_tests": cases[:NUM_SHOWN],
            "hidden_tests": cases[NUM_SHOWN:],
            "references": _solutions(row),
            "checker": {"kind": "exact", "tuples_as_lists": True} if name else {"kind": "tokens"},
            "source": optional_text(row, "url") or "apps",
            "difficulty": optional_text(row, "difficulty"),
        }
    )


def _stdin_case(test_input: Any, out: Any) -> TestCase:
    return TestCase(input=_lines(test_input), output=_lines(out))


def _lines(value: Any) -> str:
    """Text, or a list of lines, as the published harness takes both."""
    if isinstance(value, list):
        return "\n".join(str(item) for item in value) + "\n"
    return str(value)


def _call_case(test_input: Any, out: Any) -> TestCase:
    """The result is published inside a list of one, mostly; the harness takes either."""
    if not isinstance(test_input, list):
        raise RefusedRowError("arguments_are_no_list")
    arguments, whole = repr(tuple(test_input)), repr(out)
    if isinstance(out, list) and len(out) > 0:
        return TestCase(input=arguments, output=repr(out[0]), alternatives=(whole,))
    return TestCase(input=arguments, output=whole)


def _solutions(row: Row) -> list[str]:
    solutions = _json(row, "solutions") if row.get("solutions") else []
    if not isinstance(solutions, list):
        return []
    return [str(item) for item in solutions if str(item).strip()][:MAX_REFERENCES]


def _json(row: Row, name: str) -> Any:
    value = row.get(name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RefusedRowError(f"{name}_is_no_json") from error


DATASET = Dataset(
    name="apps",
    task="code",
    title="APPS",
    hub_id="codeparrot/apps",
    splits={"train": ("train.jsonl",), "test": ("test.jsonl",)},
    schema=Problem,
    convert=convert,
    licence="MIT",
    citation="Hendrycks et al. 2021, Measuring Coding Challenge Competence With APPS, "
    "arXiv 2105.09938",
    format_source="https://huggingface.co/datasets/codeparrot/apps",
    contamination_fields=("statement",),
)
