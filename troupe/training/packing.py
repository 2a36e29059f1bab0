"""Functions of the caller's files as a bundle: nothing is pickled, and a bundle can be read.

Owns which functions can travel. A function of a notebook's cell, of the running script or inside of
another function has no file from which another machine could import it, so it is refused.
"""

import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import ModuleType

from troupe.bundles.archive import REQUIREMENTS, Bundle, build_bundle, bundle_of
from troupe.code_places import defined_at
from troupe.errors import InvalidArgumentError
from troupe.training.bundled import bundled_rows
from troupe.training.dataset import TaskRows
from troupe.training.functions import Functions

TASK_FILE = "troupe_rows_task.py"
ROWS_FILE = "troupe_rows.json"
BUNDLED_TASK = f"{TASK_FILE}:RowsTask"
"""Its name in a job spec."""

_TASK = '''"""Rows and functions of a job, as troupe.connect(...).train wrote them down."""

from pathlib import Path

{imports}

from troupe.training.bundled import BundledTask
from troupe.training.functions import Functions


class RowsTask(BundledTask):
    """Judges with the functions of this bundle."""

    functions = Functions({functions})
    rows = Path(__file__).with_name("{rows}")
'''


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function that another machine can import: ``module`` and ``attribute``.

    ``top`` is the file or the package's folder to send, below the folder ``root``; None for a
    package that is installed.
    """

    module: str
    attribute: str
    top: Path | None
    root: Path | None


def pack(
    functions: Functions,
    rows: TaskRows,
    *,
    files: Sequence[str | Path] = (),
    requirements: str | Path | None = None,
) -> Bundle:
    """The bundle of rows, functions with their files, and further ``files``.

    Raises InvalidArgumentError for a function that has no file of its own, or past a limit.
    """
    given: dict[str, object] = {
        name: getattr(functions, name) for name in ("reward", "observe", "done", "success")
    }
    named = {name: named_function(name, f) for name, f in given.items() if callable(f)}
    contents: dict[str, bytes] = {}
    for function in named.values():
        if function.top is not None:
            contents |= build_bundle([function.top], root=function.root).files
    if files:
        contents |= build_bundle(list(files)).files
    if requirements is not None:
        contents[REQUIREMENTS] = Path(requirements).expanduser().read_bytes()
    arguments = [f"{name}={f.module}.{f.attribute}" for name, f in named.items()]
    if isinstance(functions.success, Real):
        arguments.append(f"success={float(functions.success)!r}")
    contents[TASK_FILE] = _TASK.format(
        imports="\n".join(
            f"import {module}" for module in sorted({f.module for f in named.values()})
        ),
        functions=", ".join(arguments),
        rows=ROWS_FILE,
    ).encode()
    contents[ROWS_FILE] = bundled_rows(rows)
    return bundle_of(contents)


def named_function(name: str, function: Callable[..., object]) -> NamedFunction:
    """How another machine imports ``function``; raises InvalidArgumentError when none can."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    attribute = (
        next((k for k, v in vars(module).items() if v is function), None) if module else None
    )
    file = getattr(module, "__file__", None)
    if module is None or module.__name__ == "__main__" or attribute is None or file is None:
        raise InvalidArgumentError(
            f"{name} ({_described(function)}) can't be sent to another machine, which imports "
            "functions from files: it is not a name of an imported module. Write it into a file "
            "(in a notebook: a cell that begins with %%writefile rewards.py), `import rewards` and "
            f"give {name}=rewards.{_suggested(function, name)}"
        )
    if _is_installed(Path(file)):
        return NamedFunction(module.__name__, attribute, None, None)
    top, root = _top_and_root(module, Path(file).resolve())
    return NamedFunction(module.__name__, attribute, top, root)


def _top_and_root(module: ModuleType, file: Path) -> tuple[Path, Path]:
    """The file of a module, or the folder of its outermost package; and the folder of that."""
    parts = module.__name__.split(".")
    if len(parts) == 1 and not hasattr(module, "__path__"):
        return file, file.parent
    depth = len(parts) - (0 if hasattr(module, "__path__") else 1)
    top = file.parents[depth - 1]
    return top, top.parent


def _is_installed(file: Path) -> bool:
    places = (sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
    return any(file.is_relative_to(place) for place in places if place)


def _described(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    place = defined_at(function)
    return f"{name}, {place}" if place else name


def _suggested(function: Callable[..., object], name: str) -> str:
    own = getattr(inspect.unwrap(function), "__name__", "")
    return own if re.fullmatch(r"[A-Za-z_]\w*", own) else name
