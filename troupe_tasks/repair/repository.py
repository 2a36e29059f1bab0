"""Repositories: files by path, their functions, and one program that runs a function of them.

Owns the packages that this project brings (``packages/``) and how a repository is imported from
memory, in the sandbox and, for own code alone, in this process.
"""

import ast
import builtins
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from troupe.tasks.family import Split

Files = Mapping[str, str]
"""Path inside the repository to text."""

PACKAGES: Mapping[Split, tuple[str, ...]] = {
    "train": ("dates", "grid", "ledger", "poly", "stock", "textkit"),
    "validation": ("intervals", "scores"),
    "test": ("routes", "tokens"),
}
"""No package is in two splits: its right source is seen in every one of its tasks."""

ENTRY = "run_call"

_RUNNER = """
import importlib, importlib.util, json, sys
_FILES = json.loads(%s)
class _Module:
    def __init__(self, path):
        self.path = path
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(_FILES[self.path], self.path, "exec"), module.__dict__)
class _Finder:
    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        for place in (base + ".py", base + "/__init__.py"):
            if place in _FILES:
                is_package = place.endswith("__init__.py")
                return importlib.util.spec_from_loader(name, _Module(place), is_package=is_package)
        return None
sys.meta_path.insert(0, _Finder())
def run_call(name, *args):
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)(*args)
"""


def program(files: Files) -> str:
    """A program whose ``run_call("pkg.module.function", ...)`` runs the repository."""
    sources = {path: text for path, text in files.items() if not path.startswith("tests/")}
    return _RUNNER % repr(json.dumps(sources))


@cache
def package_files(name: str) -> dict[str, str]:
    """The right files of an own package, by path."""
    folder = Path(__file__).parent / "packages" / name
    paths = sorted(folder.glob("*.py"))
    return {f"{name}/{path.name}": path.read_text("utf-8") for path in paths}


def module_of(path: str) -> str:
    """``ledger.book`` of ``ledger/book.py``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def functions_of(files: Files) -> dict[str, ast.FunctionDef]:
    """Functions at the top of each module, by their full name."""
    return {
        f"{module_of(path)}.{node.name}": node
        for path, text in files.items()
        if path.endswith(".py")
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def imported(files: Files) -> dict[str, ModuleType]:
    """Modules of an *own* repository, run in this process. Never give it what an agent wrote."""
    modules: dict[str, ModuleType] = {}

    def load(name: str) -> ModuleType:
        if name in modules:
            return modules[name]
        module = modules[name] = ModuleType(name)
        base = name.replace(".", "/")
        path = f"{base}.py" if f"{base}.py" in files else f"{base}/__init__.py"
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]

        def find(
            wanted: str,
            space: Any = None,
            local: Any = None,
            fromlist: Any = (),
            level: int = 0,
        ) -> Any:
            if level == 1:
                return load(f"{package}.{wanted}")
            return builtins.__import__(wanted, space, local, fromlist, level)

        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": find}
        exec(compile(files[path], path, "exec"), module.__dict__)
        return module

    for path in files:
        if not path.startswith("tests/"):
            load(module_of(path))
    return modules
