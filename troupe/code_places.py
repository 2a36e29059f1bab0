"""Where the caller's code stands, as a person looks for it: a file or a cell, and a line.

Reads tracebacks and code objects alone. Never runs anything.
"""

import inspect
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

_MAX_FRAMES = 4
_TROUPE, _PYTHON = f"{Path(__file__).parent}/", f"{sysconfig.get_path('stdlib')}/"


def raised_at(error: BaseException) -> str:
    """The innermost frames below the call of the caller's function, innermost first."""
    return _told(traceback.extract_tb(error.__traceback__)[1:])


def raised_in(error: BaseException) -> str:
    """The innermost frames that are neither Troupe's nor Python's, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return _told([frame for frame in frames if not _is_library(frame.filename)])


def told_with_place(error: BaseException) -> str:
    """``error`` in words, and where code that is neither Troupe's nor Python's raised it."""
    place = raised_in(error)
    return f"{type(error).__name__}: {error}{f' (at {place})' if place else ''}"


def running_in(thread: int, below: FrameType | None) -> str:
    """The same of what a thread runs now, in calls from ``below``."""
    frames: list[traceback.FrameSummary] = []
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame is not below:
        code = frame.f_code
        frames.insert(0, traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return _told([place for place in frames if not _is_library(place.filename)])


def _is_library(name: str) -> bool:
    if name.startswith(_PYTHON):
        return "site-packages" not in name
    return name.startswith((_TROUPE, "<frozen"))


def _told(every: Sequence[traceback.FrameSummary]) -> str:
    frames = every[-_MAX_FRAMES:]
    places = [f"{_file(f.filename)}, line {f.lineno}, in {f.name}" for f in reversed(frames)]
    if not places:
        return ""
    source = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
    return " < ".join(places) + (f": `{source}`" if source else "")


def defined_at(function: object) -> str:
    """The first line of a function; empty for one without source, such as a built-in."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f"{_file(code.co_filename)}, line {code.co_firstlineno}" if code else ""


def _file(name: str) -> str:
    """``Cell In[3]`` for a notebook's cell, else the path, relative where it lies below here."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and (cell := shell.compile.format_code_name(name)):
        return " ".join(cell)
    path = Path(name)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else name
