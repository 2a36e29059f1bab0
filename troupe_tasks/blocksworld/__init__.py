"""Blocksworld: a tool agent tries moves out, a planner builds the stacks of the goal."""

from troupe_tasks.blocksworld.family import Blocksworld, BlocksworldParams

__all__ = ["Blocksworld", "BlocksworldParams"]
