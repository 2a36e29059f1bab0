"""Runs a test script with ``candidate`` answered from a table; tells which calls it lacks.

The judged program is not here: its answers are, so the script may hold expected values.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os

from troupe_tasks.code.guest.call import RESULT_FD, tell
from troupe_tasks.code.guest.program import guarded
from troupe_tasks.code.guest.values import decoded, encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Pending:
    """The result of a call that is not known yet: every comparison holds, for this round."""

    __iter__ = None

    def _hold(self, *_: object) -> bool:
        return True

    def _stay(self, *_: object) -> Pending:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _hold
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __abs__ = __neg__ = _stay
    __truediv__ = __rtruediv__ = __mod__ = __round__ = __getitem__ = _stay


def exception_named(name: str) -> Exception:
    """An exception of a built-in class, as the program raised it.

    None that only ends an iteration: in ``all(map(candidate, ...))`` it would end the test, passed.
    """
    kind = getattr(builtins, name, None)
    ends = (StopIteration, StopAsyncIteration)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, ends):
        with contextlib.suppress(TypeError):
            return kind("raised by the program")
    return RuntimeError("raised by the program")


def run_script(job: dict[str, Any]) -> None:
    """The script's verdict for the answers that are known."""
    os.dup2(1, RESULT_FD)
    asked: list[dict[str, Any]] = []

    def run(space: dict[str, Any], code: Any) -> None:
        space["candidate"] = space[job["entry"] or "candidate"] = candidate_of(job, asked)
        passed = True
        try:
            exec(code, space)
        except BaseException:
            passed = False
        tell(job, {"status": "ok", "passed": passed, "asked": asked})

    guarded(job, run, "script")


def candidate_of(job: dict[str, Any], asked: list[dict[str, Any]]) -> Any:
    """A function that answers known calls, and adds others to ``asked``."""
    known = {json.dumps(call, sort_keys=True): answer for call, answer in job["known"]}

    def candidate(*args: Any, **kwargs: Any) -> Any:
        call = {
            "args": [encoded(arg) for arg in args],
            "kwargs": {name: encoded(arg) for name, arg in kwargs.items()},
        }
        key = json.dumps(call, sort_keys=True)
        if key not in known:
            asked.append(call)
            return Pending()
        answer = known[key]
        if "raised" in answer:
            raise exception_named(answer["raised"])
        if "value" not in answer:
            raise SystemExit("the program gave no answer to this call")
        return decoded(answer["value"])

    return candidate
