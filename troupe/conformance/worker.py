"""``python -m troupe.conformance.worker``: replays recorded scripts and returns every field.

Reads one JSON request on stdin and writes one JSON answer on stdout; what a family prints goes to
stderr.
"""

import json
import sys
from typing import Any

from troupe.conformance.sandbox import sandbox_for
from troupe.conformance.script import PlayScript, fields_of_script
from troupe.tasks.registry import load_family, make_environment


def main() -> None:
    """Answer one request."""
    answer_to, sys.stdout = sys.stdout, sys.stderr
    request: dict[str, Any] = json.load(sys.stdin)
    sys.path[:0] = request["import_paths"]
    family = load_family(request["name"], request["params"])
    sandbox = sandbox_for(family, request["sandbox"])
    try:
        env = make_environment(family, sandbox)
        answers = [
            fields_of_script(
                family,
                env,
                PlayScript(script["split"], script["index"], [(a, t) for a, t in script["moves"]]),
            )
            for script in request["scripts"]
        ]
    finally:
        if sandbox is not None:
            sandbox.close()
    json.dump(answers, answer_to)


if __name__ == "__main__":
    main()
