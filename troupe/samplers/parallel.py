"""Independent trajectories of one task: plain GRPO, and evaluation with a single one."""

from collections.abc import Sequence

from troupe.samplers.sampler import GroupingKey


class ParallelSampler:
    """K whole episodes of one task instance, one candidate at each action."""

    num_candidates = 1

    def __init__(
        self,
        num_trajectories: int,
        *,
        num_baselines: int = 0,
        grouping: GroupingKey = "task",
        sees_jointly: bool = False,
    ) -> None:
        self.num_trajectories = num_trajectories
        self.num_baselines = num_baselines
        self.grouping: GroupingKey = grouping
        self.sees_jointly = sees_jointly

    def choose(self, rewards: Sequence[float]) -> int:
        """The only candidate."""
        return 0
