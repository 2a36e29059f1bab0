"""Answers an importer's questions, one line of JSON each, with an environment of another library.

    python serve.py KIND

KIND is a module beside this file. Its ``opened(settings)`` gives an object; each later request
calls the method ``op`` of it. What an environment prints goes nowhere, and no reply waits for one.
The process that was started is not the one that answers: see ``guest_end``.
"""

import errno
import importlib
import json
import os
import sys
import traceback
from typing import Any, TextIO

import guest_end

MAX_ERROR_CHARS = 2000
_ERRNOS = ("ENOSPC", "EDQUOT", "EIO", "ENOMEM", "EAGAIN", "EMFILE", "ENFILE", "ESTALE", "ETIMEDOUT")
_LACKS = frozenset(getattr(errno, name) for name in _ERRNOS)
_FULL = ("No space left on device", "Disk quota exceeded", "database or disk is full")
NO_THREAD = "can't start new thread"
"""What Python's RuntimeError says."""
_STARVED = (NO_THREAD, "Cannot allocate memory", "std::bad_alloc")


class RefusedError(Exception):
    """This environment cannot be a task; the message says why."""


class MachineError(Exception):
    """A failure of the machine or of a service: worth another attempt."""


def is_transient(error: BaseException) -> bool:
    """As ``troupe.runtime.transient``, which the guest's interpreter need not have."""
    if isinstance(error, OSError):
        return error.errno in _LACKS
    words = (*_FULL, *_STARVED) if isinstance(error, RuntimeError) else _FULL
    return isinstance(error, MemoryError) or any(phrase in str(error) for phrase in words)


def answered(served: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request; what the environment raises is told, never raised."""
    arguments = {name: value for name, value in request.items() if name not in ("id", "op")}
    try:
        return {"ok": getattr(served, request["op"])(**arguments)}
    except RefusedError as error:
        return {"kind": "refused", "error": str(error)[:MAX_ERROR_CHARS]}
    except MachineError as error:
        return {"kind": "machine", "error": str(error)[:MAX_ERROR_CHARS]}
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        kind = "machine" if is_transient(error) else "broken"
        return {"kind": kind, "error": told[-MAX_ERROR_CHARS:]}


def reply(replies: TextIO, document: dict[str, Any]) -> None:
    """Write one line; what is no JSON becomes its text."""
    replies.write(json.dumps(document, default=str) + "\n")
    replies.flush()


def main(kind: str) -> None:
    """Serve until stdin ends."""
    guest_end.go_on_in_child()
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    sys.modules["serve"] = sys.modules["__main__"]
    module = importlib.import_module(kind)
    # An environment's package may be called like a file that lies here.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    served: Any = None
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        if request["op"] == "opened":
            done = answered(module, request)
            if "ok" in done:
                served, done["ok"] = done["ok"], {"pid": os.getpid()}
        else:
            done = answered(served, request)
        reply(replies, {"id": request["id"], **done})
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
