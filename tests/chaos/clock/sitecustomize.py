"""Gives each service a clock of its own: libfaketime, which reads the offset from a file.

Python imports this at its start when the folder is on PYTHONPATH. The process becomes itself
again, under the same pid, with the library before it; other programs are left alone.
"""

import os
import sys

ROLES = {
    "troupe_router": "router",
    "troupe_rollout": "rollout",
    "troupe_env": "env",
    "troupe_trainer": "trainer",
    "troupe.runtime.streams.embedded": "redis",
}


def wear(folder: str, library: str) -> None:
    """Begin again with the clock ``<folder>/<role>``, unless that is so already."""
    words = sys.orig_argv
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    clock = f"{folder}/{ROLES.get(module)}"
    if module not in ROLES or os.environ.get("FAKETIME_TIMESTAMP_FILE") == clock:
        return
    more = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": clock,
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    os.execve(sys.executable, [sys.executable, *words[1:]], {**os.environ, **more})


if "CHAOS_CLOCKS" in os.environ:
    wear(os.environ["CHAOS_CLOCKS"], os.environ["CHAOS_FAKETIME"])
