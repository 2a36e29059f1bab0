"""Sudoku: a tool agent tries digits out, a planner fills the grid; givens cannot be changed."""

from troupe_tasks.sudoku.family import Sudoku, SudokuParams

__all__ = ["Sudoku", "SudokuParams"]
