"""Pays a verifier for being right about the solution that it was shown."""

import re
from collections.abc import Mapping
from typing import Any

SOLUTION = re.compile(r"(?:Solution|\[solver\]): ")
"""What stands before a solution in the verifier's prompt; in a group chat, the speaker's name."""


def score(call: Any) -> Mapping[str, float]:
    """Term `verdict`: it approves a right solution, or sends a wrong one back.

    `call` is a `ScoredCall`: task, agent, messages, text, and judged(text) of the task's judge.
    """
    return _verdict(call, is_right=_paid(call) > 0)


def solves(call: Any) -> Mapping[str, float]:
    """The same where the judge pays for half a solution too: right is what earns all of 1."""
    return _verdict(call, is_right=_paid(call) >= 1)


def _paid(call: Any) -> float:
    """What the judge pays for the newest solution in the verifier's prompt."""
    return call.judged(SOLUTION.split(call.messages[-1].content)[-1])


def _verdict(call: Any, *, is_right: bool) -> Mapping[str, float]:
    return {"verdict": float(("APPROVE" in call.text) == is_right)}
