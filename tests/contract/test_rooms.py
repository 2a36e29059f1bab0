"""One name for one class, and one place for retries, over all of troupe and the services."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "troupe", ROOT / "services")
GENERATED = ROOT / "troupe" / "api"
RETRY = ROOT / "troupe" / "retry.py"

REST_MODELS = ROOT / "troupe" / "clients" / "rest"
"""An answer of REST is named for what it shows: `Job` is the job as a client sees it."""

KNOWN = {
    "Stream": "a Redis stream, and REST's event stream",
}
"""Names that two classes have yet."""

OWN_PAUSES = re.compile(r"(pause|backoff|wait)\w*\s*=\s*min\(|import tenacity|from tenacity")
"""A pause that grows in a loop of its own, or a second retry library."""


def modules() -> Iterator[Path]:
    for package in PACKAGES:
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
