"""One name for one class, and one place for retries, over all of troupe and the services."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "troupe", ROOT / "services")
PRODUCT = (*PACKAGES, ROOT / "troupe_tasks")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
GENERATED = ROOT / "troupe" / "api"
RETRY = ROOT / "troupe" / "retry.py"

REST_MODELS = ROOT / "troupe" / "clients" / "rest"
"""An answer of REST is named for what it shows: `Job` is the job as a client sees it."""

KNOWN = {
    "Stream": "a Redis stream, and REST's event stream",
    "Params": "the parameters of a plug-in, in each plug-in",
}
"""Names that two classes have yet."""

OWN_PAUSES = re.compile(r"(pause|backoff|wait)\w*\s*=\s*min\(|import tenacity|from tenacity")
"""A pause that grows in a loop of its own, or a second retry library."""


def modules(packages: tuple[Path, ...] = PACKAGES) -> Iterator[Path]:
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            if GENERATED not in path.parents:
                yield path


def classes() -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules():
        if REST_MODELS in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_classes_when_compared_over_all_packages_then_no_two_have_one_name() -> None:
    twice = {name: at for name, at in classes().items() if len(at) > 1 and name not in KNOWN}
    assert not twice, f"rename all but one for what each is: {twice}"


def test_pauses_when_they_grow_then_the_schedule_is_that_of_the_retry_module() -> None:
    alone = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in modules()
        if path != RETRY
        for match in [OWN_PAUSES.search(path.read_text("utf-8"))]
        if match is not None
    ]
    assert not alone, f"use troupe.retry (Backoff, retry): {alone}"


def test_packages_then_each_says_in_its_docstring_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules(PRODUCT)
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert not silent, f"one sentence: what the room is, and what it may import: {silent}"


def test_files_and_functions_then_are_short_enough_to_read() -> None:
    too_long: list[str] = []
    for path in modules(PRODUCT):
        name, text = str(path.relative_to(ROOT)), path.read_text("utf-8")
        if text.count("\n") > MAX_FILE_LINES:
            too_long.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_lines = (node.end_lineno or 0) - node.lineno + 1
                if num_lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{name}: {node.name} has {num_lines} lines")
    assert not too_long, f"split what does more than one thing: {too_long}"


def test_rooms_then_are_at_most_14_at_a_level() -> None:
    crowded: list[str] = []
    for service in ("router", "trainer", "rollout", "env"):
        package = ROOT / "services" / service / f"troupe_{service}"
        rooms = [
            path
            for path in package.iterdir()
            if (path.is_dir() and any(path.glob("*.py"))) or path.suffix == ".py"
        ]
        num_rooms = len([path for path in rooms if path.name != "__init__.py"])
        if num_rooms > 14:
            crowded.append(f"{package.name}: {num_rooms}")
    assert not crowded, crowded
