"""Turns this process into the program: Python runs in this fork, anything else by exec.

From then on the process is the untrusted program; nothing that it reports is trusted.
"""

import atexit
import builtins
import contextlib
import gc
import io
import os
import resource
import signal
import sys
import traceback
import types
from typing import Any, NoReturn

UNCAUGHT = 1

_own_modules: list[str] = []


def prepare() -> None:
    """Determine once, in the worker, which modules programs must not find loaded."""
    _own_modules[:] = [name for name in sys.modules if name.partition(".")[0] == "inside"]


def become(request: dict[str, Any], source: str, outputs: tuple[int, int]) -> NoReturn:
    """Turn this process into the program; never returns."""
    status = 127
    try:
        os.dup2(_opened(request["stdin_path"]), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        os.closerange(3, 1024)
        os.setsid()
        _limit(request["rlimits"])
        argv = request["argv"]
        if argv is None:
            status = _run_python(source, request["file"], request["folder"])
        else:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(argv[0], argv, dict(os.environ))
    except BaseException:
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def _limit(rlimits: dict[str, list[int]]) -> None:
    for name, (soft, hard) in rlimits.items():
        number = getattr(resource, name)
        ceiling = resource.getrlimit(number)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(number, (soft, hard))


def _run_python(source: str, path: str, folder: str) -> int:
    """Run ``source`` as ``python path`` would; the exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _fresh_streams()
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    for name in _own_modules:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.argv = [path]
    sys.path.insert(0, folder)
    gc.enable()
    status = _outcome(source, path, main)
    return status if _finish(main) else 120


def _fresh_streams() -> None:
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        stream = io.open(  # noqa: UP020, SIM115 (builtins.open is the same; the stream stays open)
            number,
            "r" if number == 0 else "w",
            encoding="utf-8",
            errors="backslashreplace" if number == 2 else "surrogateescape",
            buffering=-1 if number < 2 else 1,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _outcome(source: str, path: str, main: types.ModuleType) -> int:
    try:
        exec(compile(source, path, "exec"), main.__dict__)
    except SystemExit as end:
        return _exit_status(end.code)
    except KeyboardInterrupt:
        _report()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        _report()
        return UNCAUGHT
    return 0


def _exit_status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    with contextlib.suppress(Exception):
        print(code, file=sys.stderr)
    return UNCAUGHT


def _report() -> None:
    """The traceback without this module's frame, through the program's own hook."""
    kind, error, trace = sys.exc_info()
    assert kind is not None and error is not None
    frames = trace
    while frames is not None and frames.tb_frame.f_globals.get("__name__") == __name__:
        frames = frames.tb_next
    error.__traceback__ = frames
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    with contextlib.suppress(BaseException):
        sys.excepthook(kind, error, frames)


def _finish(main: types.ModuleType) -> bool:
    """What an interpreter does at its end; whether the output could be flushed."""
    with contextlib.suppress(BaseException):
        # The program's own import: were it the worker's, each fork would have to renew its locks.
        if (threading := sys.modules.get("threading")) is not None:
            threading._shutdown()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    with contextlib.suppress(BaseException):
        main.__dict__.clear()
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            flushed = False
    return flushed
