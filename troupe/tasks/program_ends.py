"""How runs of agent programs end, counted: by the info of their last action, or by their error.

A family whose steps run a program puts ``PROGRAM_END`` into the info of the action that ends a
run. Owns no judgement: what an end is worth is the family's.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping

from troupe.errors import TroupeError

PROGRAM_TASK = "program"
"""Name of the task family that runs agent programs."""
PROGRAM_END = "program_end"
"""Key of an ending transition's info: ``ANSWERED``, or the kind of the team's failure."""
ANSWERED = "answered"
"""The program returned an answer."""
OF_TEAM = (
    "program_error",
    "too_many_calls",
    "too_many_calls_at_once",
    "prompt_too_long",
    "state_too_big",
)
"""Failures that are a team's: the episode ends unpaid."""
OF_OTHERS = ("bad_call", "no_call", "diverged", "timeout", "died")
"""Failures that raise: the attempt to play fails, and a machine's is tried again."""
OTHER = "other"
"""An end that no family of ours reports: environments' words are no keys of metrics."""
_KINDS = frozenset((ANSWERED, *OF_TEAM, *OF_OTHERS))
_OF_ERROR, _OF_RUN = "PROGRAM_", "RUN_"


def end_of_error(error: TroupeError) -> str | None:
    """The kind of a program's failure that raised, such as ``timeout``; None for other errors."""
    return end_of_reason(error.reason)


def end_of_reason(reason: str) -> str | None:
    """The same by the error's reason; of a run that is never repeated it is another one."""
    if not reason.startswith(_OF_ERROR):
        return None
    return reason.removeprefix(_OF_ERROR).removeprefix(_OF_RUN).lower()


def failed_info(info_json: str, failure: str, error: TroupeError) -> str:
    """``info_json`` of an action whose run, as the next call has shown, it ended by ``failure``."""
    told = {PROGRAM_END: failure, "failure": failure, "message": error.message}
    return json.dumps({**json.loads(info_json or "{}"), **told})


def ends_of(infos_json: Iterable[str]) -> Counter[str]:
    """Number of program runs that ended in these infos, by how."""
    ends: Counter[str] = Counter()
    for text in infos_json:
        if PROGRAM_END in text:  # a look that is far cheaper than reading every info
            info = json.loads(text)
            end = info.get(PROGRAM_END) if isinstance(info, Mapping) else None
            if isinstance(end, str):
                ends[end if end in _KINDS else OTHER] += 1
    return ends


def failures_of(ends: Mapping[str, int]) -> Counter[str]:
    """The runs that failed, by kind."""
    return Counter({kind: count for kind, count in ends.items() if kind != ANSWERED})
