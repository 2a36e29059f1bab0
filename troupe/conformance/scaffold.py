"""Writes a new task from the templates beside this file: one module, or a package.

Never overwrites a file.
"""

import keyword
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from troupe import plugins
from troupe.errors import ConflictError, InvalidArgumentError

_NAME = re.compile(r"[a-z][a-z0-9_]{1,29}")

SMALLEST = {"task.py": "$name.py", "train.yaml": "$name.yaml"}
"""A task in one file, and a job that trains it."""

PACKAGE = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "train.yaml": "train.yaml",
    "init.py": "src/$name/__init__.py",
    "py.typed": "src/$name/py.typed",
    "state.py": "src/$name/state.py",
    "text.py": "src/$name/text.py",
    "environment.py": "src/$name/environment.py",
    "family.py": "src/$name/family.py",
    "test.py": "tests/test_$name.py",
}
"""Template (without ``.tmpl``) -> the file it becomes."""


def write_task_file(name: str, folder: Path) -> list[Path]:
    """Write the working task ``name`` and a job to ``folder``, one file each; return the paths.

    Raises:
        InvalidArgumentError: ``name`` can't be a Python module and a task name.
        ConflictError: one of the files exists.
    """
    _see_name(name)
    files = {folder / path: text for path, text in task_files(name).items()}
    for path in files:
        if path.exists():
            raise ConflictError(f"{path} exists; give another name, or another folder with --out")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def class_name(name: str) -> str:
    """``WordChain`` for ``word_chain``."""
    return "".join(word.capitalize() for word in name.split("_"))


def task_files(name: str) -> dict[str, str]:
    """Path -> text of the task ``name`` in one file, and of its job."""
    return _filled(name, "file", SMALLEST)


def write_task_package(name: str, folder: Path) -> Path:
    """Write an installable package with the working task ``name`` to ``folder``, and return it.

    Raises:
        InvalidArgumentError: ``name`` can't be a Python package and a task name.
        ConflictError: ``folder`` exists and is not empty.
    """
    _see_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConflictError(f"{folder} exists and is not empty; give another folder with --out")
    for path, text in package_files(name).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def package_files(name: str) -> dict[str, str]:
    """Path -> text of every file of the package ``name``."""
    return _filled(name, "task", PACKAGE)


def _filled(name: str, templates: str, files: Mapping[str, str]) -> dict[str, str]:
    values = {"name": name, "cls": class_name(name), "dashed": name.replace("_", "-")}
    folder = resources.files("troupe.conformance") / "templates" / templates
    return {
        Template(path).substitute(values): Template(
            (folder / f"{template}.tmpl").read_text("utf-8")
        ).substitute(values)
        for template, path in files.items()
    }


def _see_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name.endswith("_"):
        raise InvalidArgumentError(
            f"'{name}' cannot name a task package; use up to 30 lower-case letters, digits and _, "
            "such as word_chain"
        )
    if name in plugins.registered(plugins.TASKS) or name in ("troupe", "services", "tests"):
        raise InvalidArgumentError(
            f"'{name}' is taken by an installed package; choose another name"
        )
    if name in (*sys.stdlib_module_names, "test"):  # Python may import the task in its place
        raise InvalidArgumentError(
            f"'{name}' is a module of Python's standard library; choose another name"
        )
