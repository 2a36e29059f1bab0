"""``python -m troupe_env.bundles.host``: the process of one bundle.

Reads one line of JSON, confines itself, and serves EnvService on a socket of its own until its
parent ends. Nothing of the bundle is loaded before the confinement holds.
"""

import os
import sys
from pathlib import Path

from pydantic import BaseModel

from troupe_env.bundles.confinement import confine, limit_process, refuse_names

READY = b"ready\n"
UNCONFINED = 4
"""Exit status of a process that could not be confined."""


class HostOptions(BaseModel):
    """What the parent says; ``python_path`` goes before all other packages."""

    digest: str
    folder: str
    python_path: list[str]
    socket: str
    readable: list[str]
    memory_bytes: int
    must_confine: bool
    threads: int
    max_requests: int
    max_environments: int
    max_actions: int
    max_message_bytes: int
    call_timeout_s: float
    parent: int


def main() -> None:
    """Serve until the parent ends."""
    options = HostOptions.model_validate_json(sys.stdin.readline())
    is_confined = True
    try:
        confine(
            options.readable, str(Path(options.socket).parent), memory_bytes=options.memory_bytes
        )
    except OSError as error:
        if options.must_confine:
            sys.stderr.write(f"{error}\n")
            sys.exit(UNCONFINED)
        limit_process(options.memory_bytes)
        is_confined = False
    if os.getppid() != options.parent:
        return
    os.chdir(options.folder)
    sys.path[:0] = options.python_path
    # gRPC starts threads when it is loaded, and threads that run already are not confined.
    from troupe_env.bundles.serving import serve

    answers, sys.stdout = os.dup(1), sys.stderr  # what the code prints is no answer
    os.dup2(2, 1)

    def ready() -> None:
        if is_confined:
            refuse_names()
        os.write(answers, READY)

    serve(options, ready)


if __name__ == "__main__":
    main()
