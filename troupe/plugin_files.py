"""Loads the module in a file that a spec names; it may import files and packages beside it.

Owns which of two helpers of one name a file gets: the one beside it.
"""

import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from types import ModuleType

_loading = RLock()
"""A file may load another one."""
_helpers: dict[str, dict[str, ModuleType]] = {}
"""By folder of a loaded file, the modules that were imported from beside it, by name."""


def module_of_file(path: Path) -> ModuleType:
    """The module in a file; a changed file is another module."""
    path = path.resolve()
    digest = sha256(str(path).encode() + b"\0" + path.read_bytes()).hexdigest()[:16]
    name = f"troupe_file_{digest}"
    # Another thread may be running the file: its module is there already, and has no names yet.
    with _loading:
        return sys.modules.get(name) or _loaded_file(name, path)


def _loaded_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importing_from(str(path.parent)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importing_from(folder: str) -> Generator[None]:
    """Imports in the block find what is in ``folder`` before what is beside other loaded files.

    After it a name that two folders have is the first one's again, which may import it late, in a
    function.
    """
    own = _helpers.setdefault(folder, {})
    others = {
        name: module
        for other, modules in _helpers.items()
        for name, module in modules.items()
        if other != folder and sys.modules.get(name) is module and _has(folder, name)
    }
    for name in others:
        del sys.modules[name]
    imported = sys.modules.keys() - own.keys()  # by others: Troupe's, in a folder with its source
    sys.modules.update({name: own[name] for name in others if name in own})
    places = [place for place, other in enumerate(sys.path) if other in _helpers]
    sys.path.insert(min(places, default=len(sys.path)), folder)
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if _top(name) not in imported and _folder_of(name, module) == folder:
                own[name] = module
        sys.modules.update(others)
        if folder in sys.path:  # the first of them, as its code may change the list
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _has(folder: str, name: str) -> bool:
    place = Path(folder, _top(name))
    return place.is_dir() or place.with_suffix(".py").is_file()


def _folder_of(name: str, module: ModuleType) -> str:
    """Where ``import name`` found a file, a package or a plain folder; empty where it did not."""
    found = getattr(module, "__dict__", {})  # attributes of some modules import others
    file = found.get("__file__") or next(iter(found.get("__path__", ())), "")
    place = str(file).removesuffix(".py").removesuffix("/__init__")
    inside = f"/{name.replace('.', '/')}"
    return place.removesuffix(inside) if place.endswith(inside) else ""
