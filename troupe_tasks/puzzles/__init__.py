"""Common to puzzles: a tool agent tries actions on a copy, a planner plays, progress is paid."""

from troupe_tasks.puzzles.environment import LOCAL_TERMS, RETURN_BOUND, PuzzleEnvironment
from troupe_tasks.puzzles.images import DrawnPuzzle, DrawnPuzzleParams, image_prompt
from troupe_tasks.puzzles.puzzle import Played, Puzzle, PuzzleParams

__all__ = [
    "LOCAL_TERMS",
    "RETURN_BOUND",
    "DrawnPuzzle",
    "DrawnPuzzleParams",
    "Played",
    "Puzzle",
    "PuzzleEnvironment",
    "PuzzleParams",
    "image_prompt",
]
