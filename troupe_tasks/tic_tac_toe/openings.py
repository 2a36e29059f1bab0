"""The tasks of Tic-Tac-Toe: the board that play starts from, and the seat that moves first.

All openings of a job have equally many marks, so no game from one opening passes through another:
what is held out is never met in training, not even on the way.
"""

import hashlib
from functools import cache
from typing import Literal

from troupe.errors import InvalidArgumentError
from troupe.seeds import derive_seed
from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe.state import SEATS, State, encode

_HELD_OUT_SHARE = 10
"""One in so many classes of boards goes to validation, and as many to test; at least one each."""


First = Literal["either", "player_1"]


class TicTacToeTaskset:
    """Every opening of a split once for each seat that may move first, in a seeded order."""

    def __init__(self, seed: int, opening_marks: int, first: First) -> None:
        self._seed = seed
        self._opening_marks = opening_marks
        self._num_seats = len(SEATS) if first == "either" else 1

    def size(self, split: Split) -> int | None:
        """Number of openings, times the seats that may move first."""
        return self._num_seats * len(openings(self._opening_marks, split))

    def task(self, split: Split, index: int) -> Task:
        """The opening at ``index``; raises InvalidArgumentError when there are not so many."""
        starts = openings(self._opening_marks, split)
        total = self._num_seats * len(starts)
        if not 0 <= index < total:
            raise InvalidArgumentError(
                f"Tic-Tac-Toe with opening_marks = {self._opening_marks} has {total} {split} "
                f"tasks, 0 to {total - 1}; there is no task {index}."
            )
        place, seat = divmod(index, self._num_seats)
        order = sorted(starts, key=lambda board: derive_seed(self._seed, "opening", board))
        board = order[place]
        x_seat = seat if boards.to_move(board) == boards.X else 1 - seat
        salt = derive_seed(self._seed, split, index)
        payload = encode(State(board, x_seat, boards.value(board), salt))
        return Task(f"tic_tac_toe/{split}/{index}", split, index, payload)


@cache
def openings(num_marks: int, split: Split) -> tuple[str, ...]:
    """Boards of one split; rotations and mirror images of a board are all in one split."""
    owners = _owners(num_marks)
    return tuple(b for b in boards.after(num_marks) if owners[boards.canonical(b)] == split)


@cache
def _owners(num_marks: int) -> dict[str, Split]:
    """The split of each class, by the rank of its digest: no split is empty."""
    classes = {boards.canonical(board) for board in boards.after(num_marks)}
    ranked = sorted(classes, key=lambda name: hashlib.sha256(name.encode()).digest())
    share = max(1, len(ranked) // _HELD_OUT_SHARE)
    train, validation, test = SPLITS
    owners: dict[str, Split] = dict.fromkeys(ranked, train)
    owners.update(dict.fromkeys(ranked[:share], test))
    owners.update(dict.fromkeys(ranked[share : 2 * share], validation))
    return owners
