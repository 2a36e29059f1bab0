"""`import troupe` gives the names that users need, and costs nothing until one is used."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import troupe

SOURCE = Path(troupe.__file__).read_text("utf-8")
ROOT = Path(__file__).parents[2]


def ran(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_names_when_listed_for_readers_checkers_and_python_then_are_the_same() -> None:
    [block] = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.If)]
    imported = [
        (each.asname or each.name, each.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    ]
    lazily = [
        (name, target.partition(":")[2] or name, target.partition(":")[0])
        for name, target in troupe._MODULES.items()
    ]
    assert sorted(imported) == sorted(lazily)
    assert sorted(troupe.__all__) == sorted(troupe._MODULES)


@pytest.mark.parametrize("name", troupe.__all__)
def test_name_when_it_is_used_then_is_there(name: str) -> None:
    module, _, attribute = troupe._MODULES[name].partition(":")
    assert getattr(troupe, name) is getattr(sys.modules[module], attribute or name)
    assert name in dir(troupe)


def test_name_when_there_is_none_then_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_"):
        _ = troupe.nothing_


def test_import_when_no_name_is_used_then_loads_no_other_module_of_troupe() -> None:
    code = (
        "import json, sys; before = set(sys.modules); import troupe; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert [m for m in json.loads(ran(code)) if not m.startswith("_")] == ["troupe"]


@pytest.mark.parametrize("name", troupe.__all__)
def test_name_when_it_is_used_then_loads_no_torch(name: str) -> None:
    assert ran(f"import sys, troupe; troupe.{name}; print('torch' in sys.modules)") == "False\n"


def test_api_page_when_read_then_shows_every_public_name_once() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    shown = re.findall(r"^::: troupe\.(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(troupe.__all__)
