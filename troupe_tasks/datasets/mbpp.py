"""MBPP: mostly basic Python problems with three asserts each, full or sanitized.

Format: https://huggingface.co/datasets/google-research-datasets/mbpp. Full: task_id, text, code,
test_list, test_setup_code, challenge_test_list. Sanitized: task_id, prompt, code, test_imports,
test_list. As in the paper's prompt, the first assert is shown; the others are hidden.
"""

import ast
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import items, text
from troupe_tasks.code.asserts import cases_of_asserts
from troupe_tasks.code.problem import Problem
from troupe_tasks.code.published import finished

NUM_SHOWN = 1


def convert(row: Row) -> dict[str, Any]:
    """A call problem; the function's name comes from the first assert."""
    asserts = [str(item) for item in items(row, "test_list")]
    extra = row.get("challenge_test_list")
    more = [str(item) for item in extra] if isinstance(extra, list) else []
    code = text(row, "code")
    entry = _tested_name(asserts[0], code)
    setup = _setup(row)
    try:
        cases = cases_of_asserts([*asserts, *more], [entry], setup)
    except SyntaxError as error:
        raise RefusedRowError("test_is_no_python") from error
    if len(cases) <= NUM_SHOWN:
        raise RefusedRowError("no_hidden_test")
    return finished(
        {
            "id": f"mbpp/{text(row, 'task_id')}",
            "kind": "call",
            "entry_point": entry,
            "statement": text(row, "prompt", "text"),
            "prelude": setup,
            "public_tests": cases[:NUM_SHOWN],
            "hidden_tests": cases[NUM_SHOWN:],
            "references": [code.replace("\r\n", "\n")],
            "checker": {"kind": "exact"},
            "source": "mbpp",
        }
    )


def _setup(row: Row) -> str:
    imports = row.get("test_imports")
    lines = [str(item) for item in imports] if isinstance(imports, list) else []
    return "\n".join([*lines, str(row.get("test_setup_code") or "")]).replace("\r\n", "\n").strip()


def _tested_name(statement: str, code: str) -> str:
    """The function of ``code`` that the assert calls."""
    try:
        defined = {n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)}
        called = [
            node.func.id
            for node in ast.walk(ast.parse(statement))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
    except (SyntaxError, ValueError) as error:
        raise RefusedRowError("code_is_no_python") from error
    name = next((name for name in called if name in defined), None)
    if name is None:
        raise RefusedRowError("no_tested_function")
    return name


DATASET = Dataset(
    name="mbpp",
    task="code",
    title="MBPP",
    hub_id="google-research-datasets/mbpp",
    splits={
        "train": ("sanitized/train-*.parquet", "full/train-*.parquet"),
        "validation": ("sanitized/validation-*.parquet", "full/validation-*.parquet"),
        "test": ("sanitized/test-*.parquet", "full/test-*.parquet"),
    },
    schema=Problem,
    convert=convert,
    licence="CC-BY-4.0",
    citation="Austin et al. 2021, Program Synthesis with Large Language Models, arXiv 2108.07732",
    format_source="https://huggingface.co/datasets/google-research-datasets/mbpp",
    contamination_fields=("statement",),
)
