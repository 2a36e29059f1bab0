"""Writes docs/api.md from the names that ``import troupe`` gives: ``gen_api_docs.py OUT``."""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import troupe

HEADER = """\
# The names of `import troupe`

Generated from the docstrings by `make generate`; do not edit.

`import troupe` loads nothing else: each name is imported when it is first used. What is not listed
here may be imported from its module and may change between versions.
"""
GROUPS = {
    "Training": ["train", "train_async", "resume", "open_run", "connect"],
    "Tasks": [
        "SimpleTask", "TaskFamily", "Task", "Taskset", "Environment", "Transition", "Message",
        "Observation", "check_family",
    ],
    "Rewards": ["Reward", "JudgedTransition"],
    "Workflows": ["Workflow", "EnvironmentView", "Seat", "Action"],
    "Algorithms": ["Algorithm", "GroupRelative", "GroupOutcome", "Sample", "Sampler"],
    "Jobs": ["JobSpec", "load_spec", "parse_spec", "Client", "AsyncClient"],
    "Everywhere": [
        "Params", "derive_seed", "TroupeError", "InvalidArgumentError", "SpecInvalidError",
    ],
}  # fmt: skip


def main() -> None:
    """Write the page to the path in the first argument."""
    listed = [name for names in GROUPS.values() for name in names]
    if sorted(listed) != sorted(troupe.__all__):
        different = sorted(set(listed) ^ set(troupe.__all__))
        sys.exit(f"GROUPS of {__file__} and troupe.__all__ differ: {', '.join(different)}")
    parts = [HEADER]
    for title, names in GROUPS.items():
        parts += [f"## {title}\n", *(_entry(name) for name in names)]
    Path(sys.argv[1]).write_text("\n".join(parts), encoding="utf-8")


def _entry(name: str) -> str:
    value: Any = getattr(troupe, name)
    if not callable(value) or not hasattr(value, "__module__") or name == "Observation":
        module = troupe._MODULES[name].partition(":")[0]
        return f"### {name}\n\n`{module}.{name}` = `{_type_text(value)}`\n"
    lines = [f"### {name}\n", f"`{value.__module__}.{value.__qualname__}`\n"]
    if inspect.isfunction(value):
        lines.append(f"```python\n{name}{_signature(value)}\n```\n")
    lines.append(_text(value) + "\n")
    if inspect.isclass(value) and not issubclass(value, Exception):
        lines += _members(value)
    return "\n".join(lines)


def _members(cls: type) -> list[str]:
    """The public methods that the class itself defines."""
    rows = [
        f"- `{name}{_signature(_function(member))}`: {_first_paragraph(member)}"
        for name, member in vars(cls).items()
        if not name.startswith("_") and _function(member) is not None and _text(member)
    ]
    return ["\n".join(rows) + "\n"] if rows else []


def _function(member: Any) -> Any:
    if isinstance(member, (classmethod, staticmethod)):
        member = member.__func__
    return member if inspect.isfunction(member) else None


def _signature(function: Any) -> str:
    parts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in "".join(parts):
            parts.append("*")
        star = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
        parts.append(star.get(parameter.kind, "") + parameter.name)
    return f"({', '.join(parts)})"


def _text(value: Any) -> str:
    """The docstring as Markdown: one line a paragraph, lists and sections kept."""
    text = inspect.cleandoc(vars(value).get("__doc__") or value.__doc__ or "")
    text = re.sub(r"\n(Raises|Args|Returns):\n", r"\n\1:\n\n", text.replace("``", "`"))
    return re.sub(r"^ {4}(?=\w)", "- ", text, flags=re.MULTILINE)


def _first_paragraph(member: Any) -> str:
    return " ".join(_text(member).partition("\n\n")[0].split())


def _type_text(value: Any) -> str:
    return str(value).replace("troupe.tasks.family.", "")


if __name__ == "__main__":
    main()
