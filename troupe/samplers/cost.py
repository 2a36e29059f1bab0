"""What a sampler's draws cost, before any is made."""

import math

from troupe.samplers.joint import JointSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.job import JobSpec


def draws_per_act(sampler: Sampler, spec: JobSpec) -> int:
    """Candidates of one agent at one turn of one ticket, at most, on average over the turns.

    Counts greedy episodes, and every task that a ticket may play in the place of another.

    Example: an aligned tree of K = 2 over 2 turns has 1 + 2 nodes of 2 candidates: 3 a turn.
    """
    turns = spec.workflow.max_turns
    if isinstance(sampler, JointSampler):
        num_agents = len(spec.workflow.order)
        nodes = 1 + sampler.tree_size(num_agents, turns - 1) if turns > 1 else 1
        draws = math.ceil(sampler.num_candidates * nodes / turns)
    else:
        draws = (sampler.num_trajectories + sampler.num_baselines) * sampler.num_candidates
    return draws * (1 + spec.algorithm.redraws)
