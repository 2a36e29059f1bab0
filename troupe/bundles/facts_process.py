"""``python -m troupe.bundles.facts_process``: loads the code in its working folder for `describe`.

A request on stdin, one answer on stdout: the facts of a task, or what is wrong with it.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.bundles.planned import facts_of
from troupe.bundles.user_error import user_error
from troupe.errors import TroupeError
from troupe.rewards.family import with_reward
from troupe.spec.issues import SpecInvalidError
from troupe.spec.reward import RewardSpec
from troupe.tasks.registry import load_family


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the task that ``request`` names, of the code in this process's folder."""
    try:
        family = load_family(request["task"]["name"], request["task"]["params"])
        with_reward(family, RewardSpec.model_validate(request["reward"]))
        return {"facts": facts_of(family).model_dump(mode="json")}
    except SpecInvalidError as error:
        return {"issues": [[issue.pointer, issue.message] for issue in error.issues]}
    except TroupeError as error:
        return {"issues": [[error.pointer or "", error.message]]}
    except Exception as error:
        return {"issues": [["/task/name", user_error(error, Path.cwd())]]}


def main() -> None:
    """Answer one request from stdin, on stdout."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what the code writes, a C library included, is no answer
        request = json.loads(sys.stdin.read())
        sys.path.insert(0, str(Path.cwd()))
        json.dump(_answer(request), answers)


if __name__ == "__main__":
    main()
