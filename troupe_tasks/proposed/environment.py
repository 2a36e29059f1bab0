"""Judges a proposed puzzle and the attempts at it.

The proposer is paid when the last attempt is over: 1 - (share of the attempts that were right), and
nothing where none was. A puzzle is valid when code finds a solution, so nobody judges it.

Source: Multi-Agent Evolve (arXiv 2510.23595): a proposer's difficulty reward is one minus the
solver's mean score. There a language model judges quality; here validity is proved, and a puzzle
that is never solved pays nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.proposed import text
from troupe_tasks.proposed.countdown import solution_of, value_of
from troupe_tasks.proposed.state import State, decode_state, encode_state


def difficulty(right: Sequence[bool]) -> float:
    """What a puzzle's attempts bring its proposer.

    Example: one of four right pays 0.75, four of four 0, none of four 0.
    """
    share = sum(right) / len(right)
    return 1.0 - share if share else 0.0


class ProposedEnvironment:
    """The pure function of a proposed puzzle: see ``troupe.tasks.family.Environment``."""

    def __init__(self, size: int, largest: int, style: text.Style) -> None:
        self._size = size
        self._largest = largest
        self._style: text.Style = style

    def reset(self, task: Task) -> bytes:
        """The pool, or the puzzle of a held-out task."""
        return task.payload

    def observe(self, state: bytes, agent: str) -> Observation:
        """The pool for the proposer, the puzzle for the solver."""
        now = decode_state(state)
        if not _may_act(now, agent):
            return ()
        if agent == text.PROPOSER:
            return text.propose(now, self._size, self._largest, self._style)
        return text.solve(now, self._style)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Read the puzzle, or judge an attempt at it."""
        now = decode_state(state)
        if not _may_act(now, agent):
            return Transition(state, 0.0, {}, now.is_done, any(now.right))
        return self._posed(now, action) if agent == text.PROPOSER else self._attempted(now, action)

    def _posed(self, now: State, action: str) -> Transition:
        puzzle = text.read_puzzle(action)
        why = self._fault(now, puzzle)
        local = {"valid": 0.0 if why else 1.0}
        if puzzle is None or why:
            after = encode_state(replace(now, is_done=True))
            return Transition(after, 0.0, local, True, False, {"failure": why})
        after = replace(now, numbers=puzzle[0], target=puzzle[1])
        info = {"numbers": list(after.numbers), "target": after.target}
        return Transition(encode_state(after), 0.0, local, False, False, info)

    def _fault(self, now: State, puzzle: tuple[tuple[int, ...], int] | None) -> str:
        """Why it is no puzzle; "" for one that is."""
        if puzzle is None:
            return "format"
        numbers, target = puzzle
        if len(numbers) != self._size or not 1 <= target <= self._largest:
            return "size"
        if any(numbers.count(n) > now.pool.count(n) for n in numbers):
            return "pool"
        return "" if solution_of(numbers, target) is not None else "unsolvable"

    def _attempted(self, now: State, action: str) -> Transition:
        expression = text.read_expression(action)
        value = None if expression is None else value_of(expression, now.numbers)
        is_right = value == now.target
        right = (*now.right, is_right)
        after = replace(now, right=right, is_done=len(right) == now.attempts)
        local = {"right": float(is_right), "format": 0.0 if expression else -1.0}
        info: dict[str, Any] = {"value": value, "attempt": len(right)}
        if after.is_done and now.pool:  # a held-out puzzle is nobody's
            local[f"{text.PROPOSER}/difficulty"] = difficulty(right)
            info["solved"] = sum(right) / len(right)
        return Transition(encode_state(after), 0.0, local, after.is_done, any(right), info)


def _may_act(now: State, agent: str) -> bool:
    known_agent(agent, text.AGENTS, task="Proposed")
    if now.is_done:
        return False
    return bool(now.numbers) == (agent == text.SOLVER)
