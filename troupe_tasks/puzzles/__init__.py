"""Common to puzzles: a tool agent tries actions on a copy, a planner plays, progress is paid."""

from troupe_tasks.puzzles.environment import LOCAL_TERMS, RETURN_BOUND, PuzzleEnvironment
from troupe_tasks.puzzles.puzzle import Played, Puzzle, PuzzleParams

__all__ = [
    "LOCAL_TERMS",
    "RETURN_BOUND",
    "Played",
    "Puzzle",
    "PuzzleEnvironment",
    "PuzzleParams",
]
