"""A reward that can be farmed, for a job that must be told of it."""

from troupe import JudgedTransition, Task


def ups(transition: JudgedTransition, task: Task) -> float:
    """Pays for each move up, wherever the goal is."""
    return transition.action.split().count("U") / 3.0


def way(transition: JudgedTransition, task: Task) -> float:
    """The stricter judge: what the family pays for the way to the goal."""
    return transition.team_reward
