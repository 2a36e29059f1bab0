"""Whole episodes of one task in which all agents are compared by one agent's returns."""

from troupe.samplers.parallel import ParallelSampler


class LedSampler(ParallelSampler):
    """K whole episodes of one task; each agent's group holds the returns of ``lead`` in all K."""

    def __init__(self, num_trajectories: int, lead: str) -> None:
        super().__init__(num_trajectories)
        self.lead = lead
