"""``python -m troupe.bundles.facts_process``: loads the code in its working folder for `describe`.

A request on stdin, one answer on stdout: the facts of a task, or what is wrong with it.
"""

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.bundles.planned import facts_of
from troupe.errors import TroupeError
from troupe.rewards.family import with_reward
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import RewardSpec
from troupe.tasks.registry import load_family


def user_error(error: BaseException, folder: Path) -> str:
    """What an exception of bundled code says, with its last line in ``folder``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_in(f.filename, folder)]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"its code raised {type(error).__name__}: {error}{at}"


def _is_in(filename: str, folder: Path) -> bool:
    return Path(filename).is_relative_to(folder)


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
    answers, sys.stdout = sys.stdout, sys.stderr  # what the code prints is no answer
    request = json.loads(sys.stdin.read())
    sys.path.insert(0, str(Path.cwd()))
    json.dump(_answer(request), answers)


if __name__ == "__main__":
    main()
