"""ClassEval: classes to complete from a skeleton, with unit tests for each method.

Format: https://huggingface.co/datasets/FudanSELab/ClassEval (task_id, skeleton, test,
solution_code, import_statement, class_name, methods_info, ...; early files name sketch and
imports). Each unit test becomes a script about operations on one object, which are replayed on
the program's class in a run of its own: the tests and the program never meet.
"""

import ast
from collections.abc import Sequence
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import text
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.published import finished

ENTRY = "operate_on_object"

STAND_IN = """\
class Kind(type):
    def __getattr__(cls, name):
        if name not in METHODS:
            return candidate([["peek", name]])
        return lambda *args, **kwargs: candidate([["static", name, list(args), kwargs]])
class {name}(metaclass=Kind):
    def __init__(self, *args, **kwargs):
        self.__dict__["_done"] = [["new", "", list(args), kwargs]]
    def __getattr__(self, name):
        done = self.__dict__["_done"]
        if name in METHODS:
            def method(*args, **kwargs):
                done.append(["call", name, list(args), kwargs])
                return candidate(list(done))
            return method
        return candidate([*done, ["get", name]])
    def __setattr__(self, name, value):
        self.__dict__["_done"].append(["set", name, [value], {{}}])
METHODS = {methods!r}
"""
"""The class as a test script sees it: each operation asks for the result of all so far."""

REPLAY = """\
def operate_on_object(operations):
    thing = result = None
    for what, name, *rest in operations:
        if what == "new":
            thing = {name}(*rest[0], **rest[1])
        elif what == "call":
            result = getattr(thing, name)(*rest[0], **rest[1])
        elif what == "static":
            result = getattr({name}, name)(*rest[0], **rest[1])
        elif what == "set":
            setattr(thing, name, rest[0][0])
        else:
            result = getattr(thing if what == "get" else {name}, name)
    return result
"""
"""The same operations on the program's class."""


def convert(row: Row) -> dict[str, Any]:
    """A call problem about a class, for the coder alone."""
    skeleton, solution = text(row, "skeleton", "sketch"), text(row, "solution_code")
    name = text(row, "class_name")
    imports = row.get("import_statement", row.get("imports"))
    prelude = "\n".join(str(line) for line in imports) if isinstance(imports, list) else ""
    try:
        scripts = _scripts(str(row.get("test") or ""), name, _methods(solution, name))
    except SyntaxError as error:
        raise RefusedRowError("test_is_no_python") from error
    if not scripts:
        raise RefusedRowError("no_tests")
    return finished(
        {
            "id": f"classeval/{text(row, 'task_id')}",
            "kind": "call",
            "entry_point": ENTRY,
            "asked": f"the class {name}, complete, with its imports",
            "statement": f"Complete this class:\n```python\n{skeleton}\n```",
            "prelude": prelude,
            "epilogue": REPLAY.format(name=name),
            "hidden_tests": [TestCase(script=script) for script in scripts],
            "references": [solution],
            "checker": {"kind": "exact"},
            "source": "classeval",
            "split": "test",
        }
    )


def _methods(solution: str, name: str) -> list[str]:
    """What can be called on the class, by the published solution."""
    classes = [n for n in ast.parse(solution).body if isinstance(n, ast.ClassDef)]
    node_of_class = next((node for node in classes if node.name == name), None)
    if node_of_class is None:
        raise RefusedRowError("solution_without_class")
    return sorted(
        n.name
        for n in node_of_class.body
        if isinstance(n, ast.FunctionDef)
        and not any(isinstance(d, ast.Name) and d.id == "property" for d in n.decorator_list)
    )


def _scripts(source: str, name: str, methods: Sequence[str]) -> list[str]:
    """One script a test method, with what its class sets up and nothing of the other tests."""
    tree = ast.parse(source)
    stand_in = STAND_IN.format(name=name, methods=list(methods))
    outside = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
    before = "\n".join(ast.unparse(node) for node in outside)
    return [
        f"import unittest\n{before}\n{stand_in}\n{_only(case, method)}\n"
        f"{case.name}({method!r}).debug()"
        for case in tree.body
        if isinstance(case, ast.ClassDef)
        for method in _tests(case)
    ]


def _tests(case: ast.ClassDef) -> list[str]:
    return [n.name for n in case.body if isinstance(n, ast.FunctionDef) and _is_test(n)]


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


def _only(case: ast.ClassDef, method: str) -> str:
    body = [
        node
        for node in case.body
        if not _is_test(node) or (isinstance(node, ast.FunctionDef) and node.name == method)
    ]
    return ast.unparse(
        ast.ClassDef(case.name, case.bases, case.keywords, body, case.decorator_list)
    )


DATASET = Dataset(
    name="classeval",
    task="code",
    title="ClassEval",
    hub_id="FudanSELab/ClassEval",
    splits={"test": ("data/test-*.parquet", "ClassEval_data.json")},
    schema=Problem,
    convert=convert,
    licence="MIT",
    citation="Du et al. 2023, ClassEval: A Manually-Crafted Benchmark for Evaluating LLMs on "
    "Class-level Code Generation, arXiv 2308.01861",
    format_source="https://huggingface.co/datasets/FudanSELab/ClassEval",
    contamination_fields=("statement",),
)
