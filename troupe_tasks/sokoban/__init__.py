"""Sokoban: a tool agent tries moves out, a planner pushes every box onto a goal."""

from troupe_tasks.sokoban.family import Sokoban, SokobanParams

__all__ = ["Sokoban", "SokobanParams"]
