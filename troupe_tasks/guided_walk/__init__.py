"""Guided walk: a scout sees the walls and the walker, the walker alone knows the goal."""

from troupe_tasks.guided_walk.family import GuidedWalk, GuidedWalkParams

__all__ = ["GuidedWalk", "GuidedWalkParams"]
