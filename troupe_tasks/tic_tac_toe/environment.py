"""Judges one move of Tic-Tac-Toe on its own copy of the state.

A move's worth is exact: what it changes in the minimax value of the board. The result is paid to
both seats when the game ends, whoever moved last. An illegal move loses the game.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from troupe.errors import InvalidArgumentError
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe import state as states
from troupe_tasks.tic_tac_toe import text
from troupe_tasks.tic_tac_toe.state import SEATS, State

Opponent = Literal["none", "random", "optimal"]

RETURN_BOUND = 1.0
"""One win against a scripted opponent; in self-play the team reward is always 0."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """One seat's move: the state right after it, and what it was worth to the seat."""

    state: State
    value: int
    is_legal: bool


class TicTacToeEnvironment:
    """The pure function of Tic-Tac-Toe: see ``troupe.tasks.family.Environment``."""

    def __init__(self, opponent: Opponent, style: text.Style) -> None:
        self._opponent: Opponent = opponent
        self._style: text.Style = style

    def reset(self, task: Task) -> bytes:
        """The opening; a scripted opponent that is first to move has moved."""
        return states.encode(self._replied(states.decode(task.payload)))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees; empty while it is not its turn."""
        decoded = states.decode(state)
        self._check(agent)
        if decoded.is_done or decoded.seat != agent:
            return ()
        return text.observation(decoded, agent, self._style)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Play the move in ``action``, and the scripted opponent's reply to it.

        Out of turn, or after the end, an action changes nothing and earns nothing.
        """
        before = states.decode(state)
        self._check(agent)
        if before.is_done or before.seat != agent:
            return _unchanged(before, self._opponent)
        cell, is_well_formed = text.read_move(action)
        judged = _moved(before, agent, cell)
        after = self._replied(judged.state)
        terms = {
            "format": 0.0 if is_well_formed else -1.0,
            "legal": 0.0 if judged.is_legal else -1.0,
            "value": float(judged.value),
        }
        team_reward = 0.0
        if after.is_done and self._opponent == "none":
            terms["outcome"] = float(after.result_for(agent))
            rival = SEATS[1 - SEATS.index(agent)]
            terms[f"{rival}/outcome"] = float(after.result_for(rival))
        elif after.is_done:
            team_reward = float(after.result_for(agent))
        return _transition(after, self._opponent, team_reward, terms)

    def _replied(self, state: State) -> State:
        """``state`` after the scripted opponent's move, if there is one and it is to move."""
        if self._opponent == "none" or state.is_done or state.seat == SEATS[0]:
            return state
        rng = Random(f"{state.salt}/{state.board}")
        choices = boards.free(state.board)
        if self._opponent == "optimal":
            choices = boards.best_cells(state.board)
        return _moved(state, SEATS[1], rng.choice(choices)).state

    def _check(self, agent: str) -> None:
        known_agent(agent, SEATS, task="Tic-Tac-Toe")
        if agent != SEATS[0] and self._opponent != "none":
            raise InvalidArgumentError(
                f"With opponent = {self._opponent} the environment plays {agent} itself; take it "
                "out of the job's agents, or set opponent to none."
            )


def _moved(before: State, seat: str, cell: int | None) -> _Judged:
    mark = before.mark_of(seat)
    worth = boards.value_for(mark, before.board)
    if cell is None or before.board[cell] != boards.EMPTY:
        lost = replace(before, forfeited_by=mark)
        return _Judged(_with_blunder(lost, seat, -1 - worth), -1 - worth, is_legal=False)
    board = boards.placed(before.board, cell)
    change = boards.value_for(mark, board) - worth
    after = _with_blunder(replace(before, board=board, last=cell), seat, change)
    return _Judged(after, change, is_legal=True)


def _with_blunder(state: State, seat: str, change: int) -> State:
    if change >= 0:
        return state
    counts = [n + (SEATS[i] == seat) for i, n in enumerate(state.blunders)]
    return replace(state, blunders=(counts[0], counts[1]))


def _unchanged(state: State, opponent: Opponent) -> Transition:
    return _transition(state, opponent, 0.0, {})


def _transition(
    after: State, opponent: Opponent, team_reward: float, terms: Mapping[str, float]
) -> Transition:
    info = {
        "board": text.drawing(after.board),
        "x": after.seat_of(boards.X),
        "to_move": None if after.is_done else after.seat,
        "result": _result(after),
        "forfeited_by": after.forfeited_by and after.seat_of(after.forfeited_by),
        "blunders": dict(zip(SEATS, after.blunders, strict=True)),
    }
    return Transition(
        states.encode(after),
        team_reward,
        terms,
        done=after.is_done,
        success=after.is_done and _is_at_par(after, opponent),
        info=info,
    )


def _is_at_par(state: State, opponent: Opponent) -> bool:
    """No seat of the team got less than perfect play gets from the opening, and none forfeited.

    A lost opening asks for no more than a loss, and that loss must be played.
    """
    team = SEATS if opponent == "none" else SEATS[:1]
    held = all(state.result_for(seat) >= state.par_for(seat) for seat in team)
    return held and state.forfeited_by is None


def _result(state: State) -> str:
    if not state.is_done:
        return "open"
    won = [seat for seat in SEATS if state.result_for(seat) > 0]
    return f"{won[0]} won" if won else "draw"
