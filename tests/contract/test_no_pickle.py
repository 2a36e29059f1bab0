"""Nothing that arrives over a port or from a file is ever unpickled."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSAFE = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
SOURCES = sorted(p for folder in ("services", "troupe") for p in (ROOT / folder).rglob("*.py"))


def _unsafe(source: str) -> Iterator[str]:
    """What of a module could run code that data brings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            is_safe = any(
                k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords
            )
            names = [] if is_safe else ["torch.load"]
        else:
            continue
        yield from (n for n in names if n.partition(".")[0] in UNSAFE or n == "torch.load")


def test_sources_when_searched_then_none_unpickles() -> None:
    assert len(SOURCES) > 200
    found = {str(p.relative_to(ROOT)): list(_unsafe(p.read_text())) for p in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import dill.source",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.load('x', weights_only=False)",
    ],
)
def test_search_when_a_module_unpickles_then_finds_it(source: str) -> None:
    assert list(_unsafe(source))


def test_search_when_a_module_only_disassembles_then_lets_it() -> None:
    assert not list(_unsafe("import pickletools\nimport torch\ntorch.load(f, weights_only=True)"))
