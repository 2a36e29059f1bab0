"""The state of a game of Tic-Tac-Toe between moves, and its encoding as compact JSON bytes."""

import json
from dataclasses import dataclass

from troupe_tasks.tic_tac_toe import board as boards

SEATS = ("player_1", "player_2")


@dataclass(frozen=True, slots=True)
class State:
    """One moment of a game.

    ``x_seat`` is the index in ``SEATS`` of whoever plays x. ``par`` is what the opening is worth
    to x under perfect play, ``salt`` seeds a scripted opponent, ``forfeited_by`` is the mark that
    made an illegal move, ``last`` the cell of the last move, and ``blunders`` counts the moves of
    each seat that gave value away.

    Example: ``State("x...o....", x_seat=0, par=0, salt=7)``: x is to move.
    """

    board: str
    x_seat: int
    par: int
    salt: int
    forfeited_by: str | None = None
    last: int | None = None
    blunders: tuple[int, int] = (0, 0)

    @property
    def is_done(self) -> bool:
        """The game is over."""
        return self.forfeited_by is not None or boards.is_over(self.board)

    @property
    def result(self) -> int:
        """1 when x has won, -1 when o has, 0 for a draw or a game that goes on."""
        if self.forfeited_by is not None:
            return 1 if self.forfeited_by == boards.O else -1
        won = boards.winner(self.board)
        return 0 if won is None else 1 if won == boards.X else -1

    @property
    def seat(self) -> str:
        """The seat that is to move."""
        return self.seat_of(boards.to_move(self.board))

    def mark_of(self, seat: str) -> str:
        """The mark that ``seat`` plays."""
        return boards.X if SEATS.index(seat) == self.x_seat else boards.O

    def seat_of(self, mark: str) -> str:
        """The seat that plays ``mark``."""
        return SEATS[self.x_seat if mark == boards.X else 1 - self.x_seat]

    def result_for(self, seat: str) -> int:
        """``result`` as ``seat`` sees it."""
        return self.result if self.mark_of(seat) == boards.X else -self.result

    def par_for(self, seat: str) -> int:
        """``par`` as ``seat`` sees it."""
        return self.par if self.mark_of(seat) == boards.X else -self.par


def encode(state: State) -> bytes:
    """Opaque state bytes; ``decode`` is the inverse. A task's payload is its first state."""
    value = {
        "board": state.board,
        "x_seat": state.x_seat,
        "par": state.par,
        "salt": state.salt,
        "forfeited_by": state.forfeited_by,
        "last": state.last,
        "blunders": state.blunders,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> State:
    """The state that ``encode`` wrote."""
    raw = json.loads(data)
    first, second = raw.pop("blunders")
    return State(blunders=(first, second), **raw)
