"""Pays a verifier for being right about the solution that it was shown."""

from collections.abc import Mapping
from typing import Any


def score(call: Any) -> Mapping[str, float]:
    """Term `verdict`: it approves a right solution, or sends a wrong one back.

    `call` is a `ScoredCall`: task, agent, messages, text, and judged(text) of the task's judge.
    """
    solution = call.messages[-1].content.partition("Solution: ")[2]
    approves = "APPROVE" in call.text
    return {"verdict": float(approves == (call.judged(solution) > 0))}


def solves(call: Any) -> Mapping[str, float]:
    """The same where the judge pays for half a solution too: right is what earns all of 1."""
    solution = call.messages[-1].content.partition("Solution: ")[2]
    approves = "APPROVE" in call.text
    return {"verdict": float(approves == (call.judged(solution) >= 1))}
