"""Independent trajectories of one task: plain GRPO, and evaluation with a single one."""

from collections.abc import Sequence

from troupe.samplers.contract import GroupingKey


class ParallelSampler:
    """K whole episodes of one task instance, one candidate at each action."""

    num_candidates = 1
    grouping: GroupingKey = "task"

    def __init__(self, num_trajectories: int) -> None:
        self.num_trajectories = num_trajectories

    def choose(self, rewards: Sequence[float]) -> int:
        """The only candidate."""
        return 0
