"""Prompts and answers of proposed puzzles. What the proposer wrote is never shown: only the puzzle
that was read of it, with its numbers in order of size."""

import re
from collections.abc import Sequence
from typing import Literal

from troupe.tasks.family import Message, Observation
from troupe_tasks.proposed.state import State

Style = Literal["compact", "verbose"]

PROPOSER, SOLVER = "proposer", "solver"
AGENTS = (PROPOSER, SOLVER)
_READ_CHARS = 400
"""The end of a text that is read."""
_POSED = re.compile(r"pose((?:\s+\d{1,3}){2,8})\s+target\s+(\d{1,4})\s*\Z")
_MADE = re.compile(r"make\s+([-+*()\d\s]+)\Z")
WORDS = (PROPOSER, SOLVER, "pool", "choose", "pose", "target", "numbers", "make", *"+-*()")


def propose(state: State, size: int, largest: int, style: Style) -> Observation:
    """What the proposer sees: the pool, and how many numbers of it to take."""
    pool = " ".join(map(str, state.pool))
    if style == "compact":
        return (Message("user", f"pool {pool} choose {size} {PROPOSER}"),)
    rules = (
        "You pose number puzzles for a solver, who must make the target of the numbers, each used "
        "exactly once, with + - * and parentheses. You are paid for a puzzle that can be solved "
        "and that the solver seldom solves; one that it never solves pays nothing. Think first if "
        f"you like; end with a line such as: pose 3 5 7 target {min(22, largest)}"
    )
    asked = f"Choose {size} of these numbers, and a target from 1 to {largest}: {pool}"
    return Message("system", rules), Message("user", asked)


def solve(state: State, style: Style) -> Observation:
    """What the solver sees, at each attempt the same."""
    numbers = " ".join(map(str, state.numbers))
    if style == "compact":
        return (Message("user", f"numbers {numbers} target {state.target} {SOLVER}"),)
    rules = (
        "Make the target of the numbers: use each exactly once, with + - * and parentheses. Think "
        "first if you like; end with a line such as: make ( 7 - 2 ) * 3"
    )
    return Message("system", rules), Message("user", f"Numbers: {numbers}\nTarget: {state.target}")


def read_puzzle(text: str) -> tuple[tuple[int, ...], int] | None:
    """The numbers, in order of size, and the target on the last line; None where there are none."""
    match = _POSED.search(_last_line(text))
    if match is None:
        return None
    return tuple(sorted(map(int, match[1].split()))), int(match[2])


def read_expression(text: str) -> str | None:
    """The expression on the last line; None where there is none."""
    match = _MADE.search(_last_line(text))
    return match[1].strip() if match else None


def posed(numbers: Sequence[int], target: int) -> str:
    """The text that ``read_puzzle`` reads."""
    return f"pose {' '.join(map(str, numbers))} target {target}"


def made(expression: str) -> str:
    """The text that ``read_expression`` reads."""
    return f"make {expression}"


def _last_line(text: str) -> str:
    return text[-_READ_CHARS:].strip().rpartition("\n")[2]
