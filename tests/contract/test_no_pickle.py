"""Nothing that arrives over a port or from a file is ever unpickled."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSAFE = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
SOURCES = sorted(p for folder in ("services", "troupe") for p in (ROOT / folder).rglob("*.py"))


IMPORTERS = {"importlib.import_module", "import_module", "__import__"}
# They pickle what they send to the other ranks.
OBJECTS = re.compile(
    r"(broadcast|scatter|send|recv)_object_list|(all_gather|gather|isend|irecv)_object"
)


def _unsafe(source: str) -> Iterator[str]:
    """What of a module could run code that data brings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(a.name for a in node.names if OBJECTS.fullmatch(a.name))]
        elif isinstance(node, ast.Attribute) and OBJECTS.fullmatch(node.attr):
            names = [node.attr]
        elif isinstance(node, ast.Call):
            names = list(_unsafe_call(node))
        else:
            continue
        yield from (n for n in names if n.partition(".")[0] in UNSAFE or _is_named(n))


def _is_named(name: str) -> bool:
    return name in ("torch.load", "allow_pickle", "trust_remote_code") or bool(
        OBJECTS.fullmatch(name)
    )


def _unsafe_call(call: ast.Call) -> Iterator[str]:
    function = ast.unparse(call.func)
    given = {k.arg: ast.unparse(k.value) for k in call.keywords}
    if function == "torch.load" and given.get("weights_only") != "True":
        yield "torch.load"
    for name in ("allow_pickle", "trust_remote_code"):
        if given.get(name, "False") != "False":
            yield name
    if function in IMPORTERS and call.args and isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value)


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
        "import importlib\nimportlib.import_module('pickle')",
        "from importlib import import_module\nimport_module('dill.source')",
        "__import__('marshal')",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "import numpy as np\nflag = True\nnp.load('x', allow_pickle=flag)",
        "import torch.distributed as dist\ndist.broadcast_object_list([x])",
        "from torch.distributed import all_gather_object",
        "AutoModel.from_pretrained('x', trust_remote_code=True)",
    ],
)
def test_search_when_a_module_unpickles_then_finds_it(source: str) -> None:
    assert list(_unsafe(source))


def test_search_when_a_module_only_disassembles_then_lets_it() -> None:
    assert not list(_unsafe("import pickletools\nimport torch\ntorch.load(f, weights_only=True)"))
    assert not list(_unsafe("import_module('json')\nnp.load('x', allow_pickle=False)\nnp.load(y)"))
