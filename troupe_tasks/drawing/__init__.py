"""Boards drawn as images: a rasteriser in plain Python, so that every machine draws equal pixels.

Imports `troupe.tasks` alone.
"""

from troupe_tasks.drawing.board import Mark, board_image
from troupe_tasks.drawing.canvas import Canvas
from troupe_tasks.drawing.params import ObserveParams

__all__ = ["Canvas", "Mark", "ObserveParams", "board_image"]
