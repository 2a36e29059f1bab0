"""Code blocks of the pages: Python runs, job specs and Helm values validate, modules exist.

A block of Python that can't run here is in ``NOT_RUN``, with the reason; every other one runs,
after the lines that ``BEFORE`` has for its page.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import yaml
from docs_blocks import ROOT, Block, blocks, commands
from pydantic import TypeAdapter

from troupe.clients.rest import RestClient
from troupe.spec import JobSpec

NOT_PYTHON = "signatures without bodies, or two columns side by side"
NEEDS_MODEL = "trains a model: tests/e2e and tests/integration of troupe.train do"
IN_PROGRAMS = "needs a library of its own: `make test-programs` runs examples/serving"
NOT_RUN = {
    ("docs/architecture.md", "class "): NOT_PYTHON,
    ("docs/bundles.md", "from troupe.bundles"): "needs a router: tests/e2e/test_bundled_job.py",
    ("docs/coming-from.md", "from datasets"): "another library's own example",
    ("docs/publishing.md", "from peft"): "needs a published team: tests/integration/publishing",
    ("docs/python.md", "import rewards"): "needs a router: tests/e2e/test_train_on_another_router",
    ("docs/serving.md", "from langchain_openai"): IN_PROGRAMS,
    ("docs/serving.md", "from openai"): IN_PROGRAMS,
    ("docs/python.md", "import troupe"): NEEDS_MODEL,
    ("docs/python.md", "run = troupe.resume"): NEEDS_MODEL,
    ("docs/programs.md", "llm = "): "needs LangGraph: `make test-programs` runs the whole file",
    ("docs/rest.md", "import troupe"): "needs a router and a job; its calls are checked",
}
"""Page and first characters of a block to the reason why it does not run."""

BEFORE = {
    "docs/writing-a-task.md": (
        "import subprocess, sys\n"
        "argv = [sys.executable, '-m', 'troupe.cli.main', 'new', 'task', 'word_chain']\n"
        "subprocess.run(argv, check=True, timeout=60)\n"
    )
}
"""Page to the lines that its text stands for."""

PYTHON = blocks("python", "py")
YAML = blocks("yaml")
CHART = ROOT / "deploy" / "helm" / "troupe"


def reason(block: Block) -> str | None:
    """Why a block does not run, or None."""
    return next(
        (
            why
            for (page, start), why in NOT_RUN.items()
            if block.page == page and block.text.lstrip().startswith(start)
        ),
        None,
    )


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_python_block_when_it_can_run_then_it_runs(block: Block, tmp_path: Path) -> None:
    why = reason(block)
    if why is not None:
        if why != NOT_PYTHON:
            ast.parse(block.text)
        return
    (tmp_path / "block.py").write_text(BEFORE.get(block.page, "") + block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "block.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_rest_block_when_it_calls_the_client_then_the_client_has_that_method() -> None:
    [block] = [each for each in PYTHON if each.page == "docs/rest.md"]
    calls = [
        (node.func.attr, node)
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "client"
    ]
    assert len(calls) == 4
    for name, call in calls:
        keywords = {str(each.arg): None for each in call.keywords}
        inspect.signature(getattr(RestClient, name)).bind(None, *call.args, **keywords)


def test_blocks_that_do_not_run_when_listed_then_are_on_their_pages() -> None:
    used = {
        (page, start)
        for page, start in NOT_RUN
        for block in PYTHON
        if block.page == page and block.text.lstrip().startswith(start)
    }
    assert used == set(NOT_RUN)


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.name)
def test_yaml_block_when_it_is_of_a_spec_or_of_values_then_it_is_valid(block: Block) -> None:
    documents = [yaml.safe_load(part) for part in _settings_once(block.text)]
    for document in documents:
        if set(document) <= set(JobSpec.model_fields):
            _check_spec(document)
        else:
            _check_values(document)


def _settings_once(text: str) -> list[str]:
    """A block that shows two ways to write one setting, with an empty line between, is two."""
    parts = re.split(r"\n\n(?=\S)", text)
    keys = [line.partition(":")[0] for part in parts for line in part.splitlines()[:1]]
    return parts if len(parts) > 1 and len(set(keys)) < len(keys) else [text]


def _check_spec(document: dict[str, Any]) -> None:
    required = {name for name, field in JobSpec.model_fields.items() if field.is_required()}
    if required <= set(document):
        JobSpec.model_validate(document)
        return
    for name, value in document.items():
        field = JobSpec.model_fields[name]
        annotation: Any = Annotated[field.annotation, *field.metadata, None]
        TypeAdapter(annotation).validate_python(value)


def _check_values(document: dict[str, Any]) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    jsonschema.validate(_merged(defaults, document), schema)


def _merged(defaults: Any, changes: Any) -> Any:
    """Values as helm merges them: maps key by key, everything else replaced."""
    if not (isinstance(defaults, dict) and isinstance(changes, dict)):
        return changes
    return defaults | {key: _merged(defaults.get(key), value) for key, value in changes.items()}


@pytest.mark.parametrize(
    "command",
    [
        each
        for each in [*commands("python"), *commands(".venv/bin/python")]
        if not each.is_inline and len(each.words) > 2
    ],
    ids=lambda command: command.name,
)
def test_python_command_when_a_page_shows_it_then_its_module_is_there(command: Any) -> None:
    first = command.words[1]
    if command.words[2].startswith("sglang."):
        return  # of the environment that `make test-sglang` makes
    if first == "team.py":
        return  # written by the command above it: tests/programs/test_exported_plans.py runs such
    if first == "-m":
        assert find_spec(command.words[2]) is not None
    else:
        assert (ROOT / first).is_file()
