"""Runs one program as a whole. Ends with status 71 for an exception and 72 for no Python."""

from __future__ import annotations

import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

ERROR_CHARS = 600
FAILED, NO_PYTHON = 71, 72


def run_stdin(job: dict[str, Any]) -> None:
    """The program between standard input and output."""
    guarded(job, lambda space, code: exec(code, space), "__main__")


def guarded(job: dict[str, Any], run: Callable[[dict[str, Any], Any], None], name: str) -> None:
    """``run`` with the program's code and a fresh main module called ``name``.

    Random numbers are seeded: a program does the same each time.
    """
    source = job["source"]
    try:
        code = compile(source, "<program>", "exec", dont_inherit=True)
    except SyntaxError as error:
        refused(f"{type(error).__name__}: {error.msg} (line {error.lineno})")
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        refused(f"{type(error).__name__}: {error}")
    if "random" in source:
        import random

        random.seed(0)
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    module.__dict__.update(__builtins__=__builtins__, __name__=name)
    sys.argv = ["program.py"]
    streams: tuple[Any, ...] = (sys.stdin, sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(errors="replace")
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    try:
        run(module.__dict__, code)
    except SystemExit:
        raise
    except BaseException as error:
        sys.stderr.write("\n" + described(error))
        sys.exit(FAILED)


def refused(why: str) -> NoReturn:
    """End a program that is no Python."""
    sys.stderr.write(why)
    sys.exit(NO_PYTHON)


def described(error: BaseException) -> str:
    """One line on an exception, with the line of the program where there is one."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}: {str(error)[:ERROR_CHARS]}{where}"
