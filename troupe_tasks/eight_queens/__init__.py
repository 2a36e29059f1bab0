"""Eight Queens: a tool agent tries queens out, a planner places one in each file."""

from troupe_tasks.eight_queens.family import EightQueens, EightQueensParams

__all__ = ["EightQueens", "EightQueensParams"]
