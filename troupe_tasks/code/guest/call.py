"""Calls one function once and tells its result, whatever the program does to standard output."""

from __future__ import annotations

import json
import os

from troupe_tasks.code.guest.program import guarded
from troupe_tasks.code.guest.values import OpaqueError, decoded, encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RESULT_FD = 63


def run_call(job: dict[str, Any]) -> None:
    """One call of the program's function."""
    os.dup2(1, RESULT_FD)

    def run(space: dict[str, Any], code: Any) -> None:
        exec(code, space)
        function = found_function(space, job["entry"])
        args = [decoded(arg) for arg in job["args"]]
        kwargs = {name: decoded(arg) for name, arg in job.get("kwargs", {}).items()}
        try:
            tell(job, {"status": "ok", "value": encoded(function(*args, **kwargs))})
        except OpaqueError as error:
            tell(job, {"status": "value", "error": f"the result holds {error}"})

    guarded(job, run, "program")


def found_function(space: dict[str, Any], entry: str) -> Any:
    """The function ``entry``, or the method ``Class.name`` of a new object."""
    first, _, rest = entry.partition(".")
    if first not in space:
        raise NameError(f"the program defines no {first}")
    return getattr(space[first](), rest) if rest else space[first]


def tell(job: dict[str, Any], said: dict[str, Any]) -> None:
    """Say something in a line of its own among what the program prints."""
    data = f"\n{job['nonce']} {json.dumps(said)}\n".encode()
    while data:
        data = data[os.write(RESULT_FD, data) :]
