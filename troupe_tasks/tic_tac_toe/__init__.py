"""Tic-Tac-Toe: two seats of one board, or one seat against a scripted opponent."""

from troupe_tasks.tic_tac_toe.family import TicTacToe, TicTacToeParams

__all__ = ["TicTacToe", "TicTacToeParams"]
